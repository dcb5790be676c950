package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// nriName is the name with which the driver registers as an NRI plugin.
	nriName = "dra-network"
	// leastNRITimeout is the shortest request timeout that leaves the driver 300 ms for attaching. The driver uses at
	// most 60 % of the timeout (docs/adr/0004-attach-budget.md).
	leastNRITimeout = 500 * time.Millisecond
)

func checkVersions(input *Input) []Finding {
	versions := input.Driver.State.Versions
	found := checkVersion(compKubelet, versions.Kubelet)
	name, number, _ := strings.Cut(versions.Runtime, "://")
	switch {
	case name == "cri-o":
	case name == "containerd":
		found = append(found, checkVersion(compContainerd, number)...)
	case name != "":
		found = append(found, Finding{Level: Warn, What: "the container runtime is " + name,
			Why: "the driver was only tested with containerd and CRI-O",
			Do:  useTested, Source: "docs/compatibility.md"})
	}
	for _, fact := range input.Driver.State.MissingFacts {
		found = append(found, Finding{Level: Fail, What: fact, Where: versions.Runtime,
			Why: "the driver cannot keep a guarantee on this node", Do: useTested, Source: "docs/compatibility.md"})
	}
	return found
}

const useTested = "use containerd 2.2.6 or newer, or CRI-O 1.37"

func checkNRI(input *Input) []Finding {
	if !input.Runtime.NRIDisabled {
		return nil
	}
	return []Finding{{
		Level: Fail, What: "NRI is disabled in " + input.Runtime.Name, Where: input.Runtime.File,
		Why: "the driver is not notified of new pods, so every claim is rejected",
		Do:  fmt.Sprintf("%s and restart %s", input.Runtime.advice().enableNRI, input.Runtime.Name),
	}}
}

func checkNRISocket(input *Input) []Finding {
	if input.Runtime.NRIDisabled || samePath(input.Runtime.NRISocket, input.Settings.NRISocket) {
		return nil
	}
	return []Finding{{
		Level: Fail, What: fmt.Sprintf("%s's NRI socket is %s, but the driver uses %s", input.Runtime.Name,
			input.Runtime.NRISocket, input.Settings.NRISocket), Where: input.Runtime.File,
		Why: fmt.Sprintf("the driver cannot connect to %s, so every claim is rejected", input.Runtime.Name),
		Do: fmt.Sprintf("set --nri-socket=%s of the driver and mount its directory, or remove %s from the "+
			"configuration of %s", input.Runtime.NRISocket, input.Runtime.advice().socket, input.Runtime.Name),
	}}
}

// checkNRITimeout checks the timeout that the runtime has sent to the driver, if available, because the value in the
// configuration file may have been changed after the runtime started.
func checkNRITimeout(input *Input) []Finding {
	given := input.Runtime.NRITimeout
	if input.Driver != nil && input.Driver.State.NRITimeout > 0 {
		given = input.Driver.State.NRITimeout
	}
	if input.Runtime.NRIDisabled || given >= leastNRITimeout {
		return nil
	}
	return []Finding{{
		Level: Warn, What: fmt.Sprintf("%s's timeout for NRI requests is %s", input.Runtime.Name,
			given), Where: input.Runtime.File,
		Why: fmt.Sprintf("attaching takes up to 300 ms, and %s disconnects a plugin that exceeds the timeout, "+
			"which delays pods (at least %s is needed)", input.Runtime.Name, leastNRITimeout),
		Do: fmt.Sprintf("remove %s (the default is 2s), and restart %s", input.Runtime.advice().timeout,
			input.Runtime.Name),
	}}
}

// checkRequired finds a deadlock: if the runtime requires the driver, it cannot create any pod without the driver,
// including the driver's own pod.
func checkRequired(input *Input) []Finding {
	// The name may be prefixed with the plugin's index.
	isOurs := func(name string) bool { return name == nriName || strings.HasSuffix(name, "-"+nriName) }
	if !slices.ContainsFunc(input.Runtime.Required, isOurs) || input.Runtime.Tolerated != "" {
		return nil
	}
	return []Finding{{
		Level: Warn,
		What:  input.Runtime.Name + " creates no containers without the driver, not even the driver's own",
		Where: input.Runtime.File,
		Why:   "if the driver's pod ends, neither it nor any other pod can start on this node",
		Do: fmt.Sprintf("set %s next to the required plugins, and add that annotation to the driver's pod and to "+
			"static pods", input.Runtime.advice().tolerate),
	}}
}

// alwaysHasCDI reports whether this version of containerd is known to always enable CDI and to ignore enable_cdi.
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
	case input.Runtime.CDIDisabled && !alwaysHasCDI(input):
		return []Finding{{
			Level: Fail, What: "CDI is disabled in containerd", Where: input.Runtime.File,
			Why: "containers with claims are rejected, or start without their interfaces",
			Do:  "remove enable_cdi = false, and restart containerd",
		}}
	case !containsPath(input.Runtime.CDIDirs, input.Settings.CDIDir):
		return []Finding{{
			Level: Fail, What: fmt.Sprintf("%s does not read CDI specs from %s", input.Runtime.Name,
				input.Settings.CDIDir), Where: input.Runtime.File,
			Why: "containers with claims cannot start: unresolvable CDI devices",
			Do: fmt.Sprintf("add %q to cdi_spec_dirs (now %s), and restart %s", input.Settings.CDIDir,
				strings.Join(input.Runtime.CDIDirs, ", "), input.Runtime.Name),
		}}
	}
	return nil
}

// Components that have known faults in some versions.
const (
	compContainerd = "containerd"
	compKubelet    = "kubelet"
)

// fault is a known bug or limitation in a range of versions. The suffix that distributions append after a hyphen or
// plus is ignored when versions are compared.
type fault struct {
	component string
	// first is the first affected version, and before is the first fixed version.
	first, before string
	level         Level
	what, why     string
	do            string
	source        string
}

// faults returns the known faults. Each of them must have a source.
func faults() []fault {
	return []fault{
		{
			component: compContainerd, first: "0.1.0", before: "2.2.0", level: Fail,
			what: "is too old for the driver", why: "the driver needs the NRI and CDI of containerd 2.2",
			do: "upgrade containerd to 2.2.6 or newer", source: "README.md",
		},
		{
			component: compContainerd, first: "2.2.0", before: "2.2.6", level: Warn,
			what: "leaks sandboxes that an NRI plugin has rejected", why: "after some rejections containerd does not " +
				"restart: failed to reserve sandbox name",
			do: "upgrade containerd to 2.2.6 or newer", source: "https://github.com/containerd/containerd/issues/13609",
		},
		{
			component: compKubelet, first: "0.1.0", before: "1.36.0", level: Fail,
			what: "is too old for the driver", why: "preparing claims needs features of 1.36",
			do: "upgrade the node to Kubernetes 1.36.3 or newer", source: "README.md",
		},
	}
}

// unknownVersion is the version that the kubelet reports if the runtime does not respond.
const unknownVersion = "Unknown"

// checkVersion returns the known faults in the given version of a component. It ignores empty and unknown versions.
func checkVersion(component, text string) []Finding {
	if text == "" || text == unknownVersion {
		return nil
	}
	running, err := version.ParseGeneric(strings.TrimPrefix(text, "v"))
	if err != nil {
		return []Finding{{Level: Warn, What: fmt.Sprintf("the version of %s cannot be parsed: %q", component, text),
			Why: "it cannot be compared with versions that have known bugs", Do: "check its release notes"}}
	}
	var found []Finding
	for _, f := range faults() {
		if f.component != component || running.LessThan(version.MustParseGeneric(f.first)) ||
			!running.LessThan(version.MustParseGeneric(f.before)) {
			continue
		}
		found = append(found, Finding{Level: f.level, What: fmt.Sprintf("%s %s %s", component, running, f.what),
			Why: f.why, Do: f.do, Source: f.source})
	}
	return found
}
