package doctor

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Components whose versions are known.
const (
	compContainerd = "containerd"
	compKubelet    = "kubelet"
	compServer     = "API server"
)

// fault is something that is known to be wrong with some versions. Versions are compared without what follows a hyphen
// or a plus, as distributions add it.
type fault struct {
	component string
	// first is the first version that has it, before the first that has not.
	first, before string
	level         Level
	what, why     string
	do            string
	source        string
}

// faults are sorted by component. A row needs a source: an observation by others with a reference.
func faults() []fault {
	return []fault{
		{
			component: compContainerd, first: "0.1.0", before: "2.2.0", level: Fail,
			what: "is older than the driver was made for", why: "the driver needs NRI and CDI as they are since 2.2",
			do: "upgrade containerd to 2.2.6 or newer", source: "README.md",
		},
		{
			component: compContainerd, first: "2.2.0", before: "2.2.6", level: Warn,
			what: "keeps sandboxes that an NRI plugin has refused", why: "after some refusals containerd does not " +
				"start again: failed to reserve sandbox name",
			do: "upgrade containerd to 2.2.6 or newer", source: "https://github.com/containerd/containerd/issues/13609",
		},
		{
			component: compKubelet, first: "0.1.0", before: "1.36.0", level: Fail,
			what: "is older than the driver was made for", why: "claims are prepared by features of 1.36",
			do: "upgrade the node to Kubernetes 1.36.3 or newer", source: "README.md",
		},
		{
			component: compServer, first: "0.1.0", before: "1.36.2", level: Warn,
			what: "goes with a scheduler that forgets what shared devices exclude", why: "devices that exclude " +
				"others are not published",
			do: "upgrade the control plane to 1.36.2 or newer", source: "docs/compatibility.md",
		},
		{
			component: compServer, first: "1.36.3", before: "1.36.4", level: Warn,
			what: "goes with a scheduler that now and then misses that claims were made from templates",
			why:  "such a pod waits for more than a minute",
			do:   "upgrade the control plane to 1.37", source: "docs/limits.md",
		},
	}
}

// unknownVersion is the kubelet's version of a runtime that does not respond.
const unknownVersion = "Unknown"

// checkVersion compares a version with the known faults. Empty and unknown versions have no findings.
func checkVersion(component, text string) []Finding {
	if text == "" || text == unknownVersion {
		return nil
	}
	running, err := version.ParseGeneric(strings.TrimPrefix(text, "v"))
	if err != nil {
		return []Finding{{Level: Warn, What: fmt.Sprintf("the version of %s cannot be read: %q", component, text),
			Why: "it cannot be compared with versions that have known faults", Do: "look at its release notes"}}
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
