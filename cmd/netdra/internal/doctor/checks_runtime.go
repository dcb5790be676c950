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
	// leastNRITimeout is what lets the driver take its 300 ms for attaching, since it takes 60 % of it at most
	// (docs/adr/0004-attach-budget.md).
	leastNRITimeout = 500 * time.Millisecond
)

func runtimeChecks() []check {
	return []check{
		{group: groupRuntime, name: "runtime-version",
			fine: "the versions of the container runtime and of kubelet have no known faults", needs: needsCaches,
			inspect: checkVersions},
		{group: groupRuntime, name: "nri-enabled", fine: "containerd calls NRI plugins", needs: needsContainerd,
			inspect: checkNRI},
		{group: groupRuntime, name: "nri-socket", fine: "driver and containerd use the same NRI socket",
			needs: needsContainerd, inspect: checkNRISocket},
		{group: groupRuntime, name: "nri-timeout", fine: "containerd gives NRI plugins enough time",
			needs: needsContainerd, inspect: checkNRITimeout},
		{group: groupRuntime, name: "nri-required", fine: "the driver's own pod does not wait for the driver",
			needs: needsContainerd, inspect: checkRequired},
		{group: groupRuntime, name: "cdi", fine: "containerd reads the driver's CDI specs", needs: needsContainerd,
			inspect: checkCDI},
	}
}

func checkVersions(input *Input) []Finding {
	versions := input.Driver.State.Versions
	found := checkVersion(compKubelet, versions.Kubelet)
	name, number, _ := strings.Cut(versions.Runtime, "://")
	switch {
	case name == "containerd":
		found = append(found, checkVersion(compContainerd, number)...)
	case name != "":
		found = append(found, Finding{Level: Warn, What: "the container runtime is " + name,
			Why: "the driver was run with containerd only", Do: "use containerd 2.2.6 or newer",
			Source: "docs/limits.md"})
	}
	return found
}

func checkNRI(input *Input) []Finding {
	if !input.Containerd.NRIDisabled {
		return nil
	}
	return []Finding{{
		Level: Fail, What: "NRI is switched off in containerd", Where: input.Containerd.File,
		Why: "the driver is not told of new pods, so every claim is refused",
		Do: fmt.Sprintf(
			"set disable = false below [plugins.%q], take it from disabled_plugins, and restart containerd", nriPlugin,
		),
	}}
}

func checkNRISocket(input *Input) []Finding {
	if input.Containerd.NRIDisabled || samePath(input.Containerd.NRISocket, input.Settings.NRISocket) {
		return nil
	}
	return []Finding{{
		Level: Fail, What: fmt.Sprintf("containerd's NRI socket is %s, and the driver looks at %s",
			input.Containerd.NRISocket, input.Settings.NRISocket), Where: input.Containerd.File,
		Why: "the driver cannot connect to containerd, so every claim is refused",
		Do: fmt.Sprintf("give the driver --nri-socket=%s and mount its directory, or remove socket_path from the "+
			"configuration", input.Containerd.NRISocket),
	}}
}

// checkNRITimeout prefers containerd's value from the driver's registration to the file: the file may have changed
// since containerd was started.
func checkNRITimeout(input *Input) []Finding {
	given := input.Containerd.NRITimeout
	if input.Driver != nil && input.Driver.State.NRITimeout > 0 {
		given = input.Driver.State.NRITimeout // what containerd has really said
	}
	if input.Containerd.NRIDisabled || given >= leastNRITimeout {
		return nil
	}
	return []Finding{{
		Level: Warn, What: fmt.Sprintf("containerd gives NRI plugins %s for a request",
			given), Where: input.Containerd.File,
		Why: fmt.Sprintf("attaching at once takes up to 300 ms, and containerd drops a plugin that is late: pods "+
			"then wait longer (needed are %s)", leastNRITimeout),
		Do: fmt.Sprintf("remove plugin_request_timeout below [plugins.%q] (2s is containerd's own), and restart "+
			"containerd", nriPlugin),
	}}
}

// checkRequired finds a deadlock: the driver's own pod is created by a containerd that refuses to create pods without
// the driver.
func checkRequired(input *Input) []Finding {
	// A plugin is named with or without its index.
	isOurs := func(name string) bool { return name == nriName || strings.HasSuffix(name, "-"+nriName) }
	if !slices.ContainsFunc(input.Containerd.Required, isOurs) || input.Containerd.Tolerated != "" {
		return nil
	}
	return []Finding{{
		Level: Warn, What: "containerd creates no container without the driver, not even the driver's own",
		Where: input.Containerd.File,
		Why:   "once the driver's pod has ended, neither it nor any other pod starts on this node",
		Do: "set tolerate_missing_plugins_annotation beside required_plugins, and give that annotation to the " +
			"driver's pod and to static pods",
	}}
}

// alwaysHasCDI reports whether containerd's version is known to be one that ignores enable_cdi.
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
			Level: Fail, What: "CDI is switched off in containerd", Where: input.Containerd.File,
			Why: "containers with claims are refused, or start before their interfaces are there",
			Do:  "remove enable_cdi = false, and restart containerd",
		}}
	case !containsPath(input.Containerd.CDIDirs, input.Settings.CDIDir):
		return []Finding{{
			Level: Fail, What: fmt.Sprintf("containerd does not read CDI specs from %s",
				input.Settings.CDIDir), Where: input.Containerd.File,
			Why: "containers with claims wait for ever: unresolvable CDI devices",
			Do: fmt.Sprintf("add %q to cdi_spec_dirs (now %s), and restart containerd", input.Settings.CDIDir,
				strings.Join(input.Containerd.CDIDirs, ", ")),
		}}
	}
	return nil
}
