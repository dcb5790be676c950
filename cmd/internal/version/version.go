// Package version says which build of the project a program is.
//
// The rule of this package: nothing is set by flags of the linker. What is said is what the Go command has put into the
// binary, so that every way of building it says the same.
package version

import (
	"runtime/debug"
	"strings"
)

// Unknown is the version of a program that was built outside of a module or a repository, such as a test.
const Unknown = "unknown"

// whyUnknown explains Unknown to people. Where the version is data, as in metrics and JSON, it stays away.
const whyUnknown = `built without version-control data; build in a git clone, without -buildvcs=false in GOFLAGS, ` +
	`or with "make release VERSION=v0.1.0"`

// Info is what is known of a build.
type Info struct {
	// Version is the module's, made of the commit where there is no tag.
	Version string `json:"version"`
	// Revision is the commit, and Time when it was made.
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	// Modified says that the files differed from the commit.
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go,omitempty"`
}

// Get is that of this program.
func Get() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{Version: Unknown}
	}
	return infoOf(build)
}

// infoOf reads what cmd/go stamps into binaries (go help buildvcs). "(devel)" is the version of a main module that was
// built without a repository.
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

// Explain returns why a version that a program printed of itself is unknown, and how to build one that is not. It is
// empty for a version, and for a commit without one.
func Explain(printed string) string {
	if printed == Unknown || strings.HasPrefix(printed, Unknown+" (") {
		return whyUnknown
	}
	return ""
}

// Describe is String with the explanation of an unknown version, for --version.
func (i Info) Describe() string {
	text := i.String()
	if why := Explain(text); why != "" {
		text += ": " + why
	}
	return text
}

// String is for people: the version, the commit if the version does not have it, and Go's. A pseudo-version ends in the
// first twelve digits of the commit, and one of a changed tree in "+dirty": neither is said twice.
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
