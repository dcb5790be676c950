package nodeclient

import (
	"cmp"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// Versions are the versions to include in a bug report.
type Versions struct {
	Netdra version.Info `json:"netdra"`
	// Driver is empty if the driver does not answer or does not report its version.
	Driver  string `json:"driver,omitempty"`
	Kubelet string `json:"kubelet,omitempty"`
	Runtime string `json:"runtime,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
}

// VersionsOf returns netdra's version and the versions that the driver reports; state may be nil.
func VersionsOf(state *nodestate.State) Versions {
	v := Versions{Netdra: version.Get()}
	if state != nil {
		v.Driver, v.Kubelet, v.Runtime, v.Kernel = state.Version, state.Versions.Kubelet, state.Versions.Runtime,
			state.Versions.Kernel
	}
	return v
}

// String formats the versions on one line. If a version is unknown, the line includes the reason.
func (v Versions) String() string {
	parts := []string{"netdra " + v.Netdra.String()}
	// The runtime version includes the runtime's name, as in the Node object: containerd://2.4.2.
	for _, component := range []struct{ name, version string }{{"driver", v.Driver}, {"kubelet", v.Kubelet},
		{"", v.Runtime}, {"kernel", v.Kernel}} {
		if component.version != "" {
			parts = append(parts, strings.TrimSpace(component.name+" "+strings.Replace(component.version, "://", " ",
				1)))
		}
	}
	text := strings.Join(parts, ", ")
	if why := cmp.Or(version.Explain(v.Netdra.String()), version.Explain(v.Driver)); why != "" {
		text += " (" + version.Unknown + ": " + why + ")"
	}
	return text
}
