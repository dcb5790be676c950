package version

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	const commit = "4c27ac5d123456789abcdef0123456789abcdef0"
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for want, build := range map[string]*debug.BuildInfo{
		"v1.2.3 4c27ac5d1234 (go1.26.0)": {
			GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"},
			Settings: []debug.BuildSetting{setting("vcs.revision", commit), setting("vcs.modified", "false")},
		},
		"v0.0.0-20261122085300-4c27ac5d1234+dirty (go1.26.0)": {
			GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.0.0-20261122085300-4c27ac5d1234+dirty"},
			Settings: []debug.BuildSetting{setting("vcs.revision", commit), setting("vcs.modified", "true"),
				setting("vcs.time", "2026-11-22T08:53:00Z")},
		},
		"unknown 4c27ac5d1234 with changes": {
			Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{setting("vcs.revision", commit),
				setting("vcs.modified", "true")},
		},
		"unknown": {},
	} {
		if got := infoOf(build).String(); got != want {
			t.Errorf("version is %q, want %q", got, want)
		}
	}
}

// An explanation is only shown for a build that has neither a version nor a commit, and only in output for users.
func TestUnknownIsExplained(t *testing.T) {
	for printed, want := range map[string]bool{
		"unknown": true, "unknown (go1.26.0)": true, "unknown 4c27ac5d1234 (go1.26.0)": false,
		"v1.2.3 (go1.26.0)": false, "": false,
	} {
		if got := Explain(printed); (got != "") != want {
			t.Errorf("Explain(%q) = %q, want an explanation only for unknown versions", printed, got)
		}
	}
	const want = "unknown (go1.26.0): built without version-control data; build in a git clone, without " +
		`-buildvcs=false in GOFLAGS, or with "make release VERSION=v0.1.0"`
	if got := (Info{Version: Unknown, Go: "go1.26.0"}).Describe(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (Info{Version: "v1.2.3"}).Describe(); got != "v1.2.3" {
		t.Errorf("a known version is described as %q, want v1.2.3", got)
	}
}
