// Package version reports how a program was built.
//
// Invariant: no information comes from linker flags. The go command stamps the information into the
// binary, so the version is the same no matter how the binary was built.
package version

import (
	"runtime/debug"
	"strings"
)

// Unknown is the version of a program that was built outside of a module or repository, such as a test binary.
const Unknown = "unknown"

// whyUnknown explains Unknown to users. It is not included in machine-readable output such as metrics and JSON.
const whyUnknown = `built without version-control data; build in a git clone, without -buildvcs=false in GOFLAGS, ` +
	`or with "make release VERSION=v0.1.0"`

// Info describes a build.
type Info struct {
	// Version is the module's version, or a pseudo-version if the commit has no tag.
	Version string `json:"version"`
	// Revision is the commit, and Time is the commit time.
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	// Modified is true if the files differed from the commit.
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go,omitempty"`
}

// Get returns information about this program's build.
func Get() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{Version: Unknown}
	}
	return infoOf(build)
}

// infoOf evaluates the data that the go command stamps into binaries (go help buildvcs). "(devel)" is the version of a
// main module that was built outside of a repository.
func infoOf(build *debug.BuildInfo) Info {
	info := Info{Version: build.Main.Version, Go: build.GoVersion}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			info.Revision = setting.Value
		case "vcs.time":
			info.Time = setting.Value
		case "vcs.modified":
			info.Modified = setting.Value == "true"
		}
	}
	if info.Version == "" || info.Version == "(devel)" {
		info.Version = Unknown
	}
	return info
}

// Explain returns an explanation of why a program's printed version is unknown and how to build the program with a
// version. It returns "" for a known version, and for an unknown version with a commit.
func Explain(printed string) string {
	if printed == Unknown || strings.HasPrefix(printed, Unknown+" (") {
		return whyUnknown
	}
	return ""
}

// Describe returns the result of String, followed by an explanation if the version is unknown. It is used for
// --version.
func (i Info) Describe() string {
	text := i.String()
	if why := Explain(text); why != "" {
		text += ": " + why
	}
	return text
}

// String formats the build information for users: the version, the commit if it is not part of the version, and the Go
// version. It does not repeat the parts of a pseudo-version, which ends with the first twelve digits of the commit,
// followed by "+dirty" for a modified tree.
func (i Info) String() string {
	text := i.Version
	if short := i.Revision[:min(len(i.Revision), 12)]; short != "" && !strings.Contains(text, short) {
		text += " " + short
	}
	if i.Modified && !strings.Contains(text, "dirty") {
		text += " with changes"
	}
	if i.Go != "" {
		text += " (" + i.Go + ")"
	}
	return text
}
