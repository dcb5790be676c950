package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Repository is the URL of the project.
const Repository = "https://github.com/dra-networking/dra-network-driver"

// versionPattern matches a semantic version with major version 0 or 1, because a Go module with a higher major version
// needs a suffix in its path.
var versionPattern = regexp.MustCompile(`^v[01]\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

// Source is a clone of one commit, tagged with the version, in a directory that is used only for this release.
type Source struct {
	Dir, Commit, Version string
	Time                 time.Time
}

// Checkout clones the commit that is checked out in clone to dir, and tags it there. Go records the tag in the programs
// that it builds. Checkout returns an error if there are uncommitted changes, which would not be in the release, or if
// the version's tag is on a different commit in clone. It creates a clone instead of a worktree because the tag must be
// the only one: Go derives a program's version from the tags on the commit, and could choose another tag. dir must not
// exist.
func Checkout(ctx context.Context, clone, version, dir string) (Source, error) {
	fail := func(err error) (Source, error) {
		return Source{}, fmt.Errorf("cannot check out %s for release %q: %w", clone, version, err)
	}
	if !versionPattern.MatchString(version) {
		return fail(fmt.Errorf("not a valid version: use the form v0.1.0 or v0.1.0-rc.1"))
	}
	if changed, err := git(ctx, clone, "status", "--porcelain"); err != nil || changed != "" {
		return fail(orElse(err, "these files are not committed, so they would not be in it: commit or remove them\n"+
			changed))
	}
	commit, err := git(ctx, clone, "rev-parse", "HEAD")
	if err != nil {
		return fail(err)
	}
	// The output is empty if the tag does not exist. For an annotated tag, the first field is the commit. For a
	// lightweight tag, the first field is empty and the second is the commit.
	if tagged, err := git(ctx, clone, "for-each-ref", "--format=%(*objectname)%(objectname)",
		"refs/tags/"+version); err != nil || tagged != "" && !strings.HasPrefix(tagged, commit) {
		return fail(orElse(err, "the tag is on another commit: check out that commit, or choose another version"))
	}
	seconds, err := git(ctx, clone, "log", "-1", "--format=%cI", commit)
	if err != nil {
		return fail(err)
	}
	made, err := time.Parse(time.RFC3339, seconds)
	if err != nil {
		return fail(err)
	}
	for _, args := range [][]string{
		{"clone", "--quiet", "--no-tags", "--no-checkout", clone, dir}, // Go could derive the version from other tags
		{"-C", dir, "checkout", "--quiet", "--detach", commit},
		{"-C", dir, "tag", "--no-sign", version, commit}, // regardless of the user's settings
	} {
		if _, err := git(ctx, clone, args...); err != nil {
			return fail(err)
		}
	}
	return Source{Dir: dir, Commit: commit, Version: version, Time: made.UTC()}, nil
}

func (s Source) path(parts ...string) string {
	return filepath.Join(append([]string{s.Dir}, parts...)...)
}

// git runs git in a directory, without environment variables that refer to other repositories.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	// Git runs hooks with variables that refer to the repository of the hook.
	for _, setting := range os.Environ() {
		if !strings.HasPrefix(setting, "GIT_") {
			cmd.Env = append(cmd.Env, setting)
		}
	}
	return output(cmd)
}

// output runs a command and returns its output. Errors include the command's standard error.
func output(cmd *exec.Cmd) (string, error) {
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(problems.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

func orElse(err error, text string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s", text)
}
