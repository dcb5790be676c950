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
