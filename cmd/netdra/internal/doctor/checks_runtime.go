package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// nriName is the driver's name as an NRI plugin.
	nriName = "dra-network"
	// leastNRITimeout is the shortest request timeout that leaves the driver 300 ms for attaching, because the driver
	// uses at most 60 % of the timeout (docs/adr/0004-attach-budget.md).
	leastNRITimeout = 500 * time.Millisecond
)

func checkVersions(input *Input) []Finding {
	versions := input.Driver.State.Versions
	found := checkVersion(compKubelet, versions.Kubelet)
	name, number, _ := strings.Cut(versions.Runtime, "://")
	switch {
	case name == "containerd":
		found = append(found, checkVersion(compContainerd, number)...)
	case name != "":
		found = append(found, Finding{Level: Warn, What: "the container runtime is " + name,
			Why: "the driver was only tested with containerd", Do: "use containerd 2.2.6 or newer",
			Source: "docs/limits.md"})
	}
	return found
}

func checkNRI(input *Input) []Finding {
	if !input.Containerd.NRIDisabled {
		return nil
	}
	return []Finding{{
		Level: Fail, What: "NRI is disabled in containerd", Where: input.Containerd.File,
		Why: "the driver is not notified of new pods, so every claim is rejected",
		Do: fmt.Sprintf(
			"set disable = false in [plugins.%q], remove it from disabled_plugins, and restart containerd", nriPlugin,
		),
	}}
}

func checkNRISocket(input *Input) []Finding {
	if input.Containerd.NRIDisabled || samePath(input.Containerd.NRISocket, input.Settings.NRISocket) {
		return nil
	}
	return []Finding{{
		Level: Fail, What: fmt.Sprintf("containerd's NRI socket is %s, but the driver uses %s",
			input.Containerd.NRISocket, input.Settings.NRISocket), Where: input.Containerd.File,
		Why: "the driver cannot connect to containerd, so every claim is rejected",
		Do: fmt.Sprintf("set --nri-socket=%s of the driver and mount its directory, or remove socket_path from the "+
			"configuration of containerd", input.Containerd.NRISocket),
	}}
}

// checkNRITimeout prefers the timeout that containerd has sent to the driver over the value in the file, which may have
// been changed after containerd started.
func checkNRITimeout(input *Input) []Finding {
	given := input.Containerd.NRITimeout
	if input.Driver != nil && input.Driver.State.NRITimeout > 0 {
		given = input.Driver.State.NRITimeout
	}
	if input.Containerd.NRIDisabled || given >= leastNRITimeout {
		return nil
	}
	return []Finding{{
		Level: Warn, What: fmt.Sprintf("containerd's timeout for NRI requests is %s",
			given), Where: input.Containerd.File,
		Why: fmt.Sprintf("attaching takes up to 300 ms, and containerd disconnects a plugin that exceeds the timeout, "+
			"which delays pods (at least %s is needed)", leastNRITimeout),
		Do: fmt.Sprintf("remove plugin_request_timeout from [plugins.%q] (the default is 2s), and restart "+
			"containerd", nriPlugin),
	}}
}

// checkRequired finds a deadlock: containerd refuses to create any pod without the driver, including the driver's own.
func checkRequired(input *Input) []Finding {
	// The name may be prefixed with the index of the plugin.
	isOurs := func(name string) bool { return name == nriName || strings.HasSuffix(name, "-"+nriName) }
	if !slices.ContainsFunc(input.Containerd.Required, isOurs) || input.Containerd.Tolerated != "" {
		return nil
	}
	return []Finding{{
		Level: Warn, What: "containerd creates no containers without the driver, not even the driver's own",
		Where: input.Containerd.File,
		Why:   "if the driver's pod ends, neither it nor any other pod can start on this node",
		Do: "set tolerate_missing_plugins_annotation next to required_plugins, and add that annotation to the " +
			"driver's pod and to static pods",
	}}
}

// alwaysHasCDI reports whether containerd is known to have a version that always enables CDI and ignores enable_cdi.
func alwaysHasCDI(input *Input) bool {
	if input.Driver == nil {
		return false
	}
	number, found := strings.CutPrefix(input.Driver.State.Versions.Runtime, "containerd://")
	running, err := version.ParseGeneric(number)
	return found && err == nil && running.AtLeast(version.MustParseGeneric("2.4.0"))
}

func checkCDI(input *Input) []Finding {
	switch {
	case input.Containerd.CDIDisabled && !alwaysHasCDI(input):
		return []Finding{{
			Level: Fail, What: "CDI is disabled in containerd", Where: input.Containerd.File,
			Why: "containers with claims are rejected, or start without their interfaces",
			Do:  "remove enable_cdi = false, and restart containerd",
		}}
	case !containsPath(input.Containerd.CDIDirs, input.Settings.CDIDir):
		return []Finding{{
			Level: Fail, What: fmt.Sprintf("containerd does not read CDI specs from %s",
				input.Settings.CDIDir), Where: input.Containerd.File,
			Why: "containers with claims cannot start: unresolvable CDI devices",
			Do: fmt.Sprintf("add %q to cdi_spec_dirs (now %s), and restart containerd", input.Settings.CDIDir,
				strings.Join(input.Containerd.CDIDirs, ", ")),
		}}
	}
	return nil
}
