package nodeclient

import (
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
)

// If any version is unknown, the line contains the reason exactly once.
func TestUnknownVersionsAreExplained(t *testing.T) {
	const why = ` (unknown: built without version-control data; build in a git clone, without ` +
		`-buildvcs=false in GOFLAGS, or with "make release VERSION=v0.1.0")`
	known, unknown := version.Info{Version: "v1.2.3"}, version.Info{Version: version.Unknown}
	for want, versions := range map[string]Versions{
		"netdra v1.2.3, driver v1.2.3 (go1.26.0)":             {Netdra: known, Driver: "v1.2.3 (go1.26.0)"},
		"netdra v1.2.3, driver unknown (go1.26.0)" + why:      {Netdra: known, Driver: "unknown (go1.26.0)"},
		"netdra unknown, driver unknown, kernel 6.12.9" + why: {Netdra: unknown, Driver: "unknown", Kernel: "6.12.9"},
		"netdra unknown" + why:                                {Netdra: unknown},
		"netdra v1.2.3, driver unknown 4c27ac5d1234 (go1.26.0)": {Netdra: known,
			Driver: "unknown 4c27ac5d1234 (go1.26.0)"},
	} {
		if got := versions.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
