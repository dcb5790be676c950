package doctor

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Components with known version faults.
const (
	compContainerd = "containerd"
	compKubelet    = "kubelet"
	compServer     = "API server"
)

// fault is a known bug or limitation in some versions. When versions are compared, the suffix after a hyphen or plus,
// which distributions add, is ignored.
type fault struct {
	component string
	// first is the first affected version, and before is the first version with a fix.
	first, before string
	level         Level
	what, why     string
	do            string
	source        string
}

// faults returns the known faults. Each must have a source.
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
		{
			component: compServer, first: "0.1.0", before: "1.36.2", level: Warn,
			what: "belongs to a scheduler that ignores exclusions of shared devices", why: "mutually exclusive " +
				"devices are not published",
			do: "upgrade the control plane to 1.36.2 or newer", source: "docs/compatibility.md",
		},
		{
			component: compServer, first: "1.36.3", before: "1.36.4", level: Warn,
			what: "belongs to a scheduler that sometimes misses claims from templates",
			why:  "such a pod stays pending for more than a minute",
			do:   "upgrade the control plane to 1.37", source: "docs/limits.md",
		},
	}
}

// unknownVersion is the version that the kubelet reports for a runtime that does not respond.
const unknownVersion = "Unknown"

// checkVersion returns the known faults in a version. It ignores empty and unknown versions.
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
