package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// Build tags: runc needs seccomp. no_btrfs and no_zfs omit containerd's snapshotters for these file systems, whose
// headers would otherwise be required. osusergo and netgo avoid using C libraries for name lookups.
const (
	buildTags      = "seccomp no_btrfs no_zfs osusergo netgo"
	pluginsPath    = "github.com/containernetworking/plugins/"
	whereaboutsCmd = "github.com/k8snetworkplumbingwg/whereabouts/cmd"
)

// toolchain describes a build: the packages, the flags, and the module that pins the tools. The module is e2e/tools or
// its counterpart for another Kubernetes version.
type toolchain struct {
	dir   string   // module directory
	tools []string // package paths
	flags []string // for go build
	hash  string   // the name of the result
}

// toolsDir returns the module directory for a Kubernetes version such as "1.36". If version is empty, this is
// e2e/tools, which pins the newest version.
func toolsDir(clone, version string) (string, error) {
	newest := filepath.Join(clone, "e2e", "tools")
	if version == "" {
		return newest, nil
	}
	modules, err := filepath.Glob(newest + "-*")
	if err != nil {
		return "", err
	}
	var known []string
	for _, dir := range modules {
		other := strings.TrimPrefix(dir, newest+"-")
		if other == version {
			return dir, nil
		}
		known = append(known, other)
	}
	return "", fmt.Errorf("no tools for Kubernetes %q: use one of %q, or none for the version of "+
		"e2e/tools", version, known)
}

// goMod contains the fields in the output of `go mod edit -json` that this package uses.
type goMod struct {
	Require []struct{ Path, Version string }
	Tool    []struct{ Path string }
}

// readTools reads the list of programs that a module pins (the "tool" lines of its go.mod).
func readTools(ctx context.Context, dir string) (toolchain, error) {
	t := toolchain{dir: dir}
	data, err := t.command(ctx, "mod", "edit", "-json").Output()
	if err != nil {
		return t, fmt.Errorf("cannot read %s/go.mod: %w", t.dir, explain(err))
	}
	var mod goMod
	if err := json.Unmarshal(data, &mod); err != nil {
		return t, fmt.Errorf("cannot decode %s/go.mod: %w", t.dir, err)
	}
	for _, tool := range mod.Tool {
		t.tools = append(t.tools, tool.Path)
	}
	if t.flags, err = buildFlags(mod); err != nil {
		return t, fmt.Errorf("cannot use %s/go.mod: %w", t.dir, err)
	}
	version, err := t.command(ctx, "env", "GOVERSION").Output()
	if err != nil {
		return t, fmt.Errorf("cannot ask for Go's version: %w", explain(err))
	}
	t.hash, err = t.fingerprint(strings.TrimSpace(string(version)))
	return t, err
}

// buildFlags returns flags that set the versions from go.mod in the binaries, using the same variables as official
// releases. Without these flags, Kubernetes reports the version v0.0.0-master+$Format:%H$ (component-base/version), for
// example in kubectl version and in the Node object.
func buildFlags(mod goMod) ([]string, error) {
	versions := map[string]string{}
	for _, r := range mod.Require {
		versions[r.Path] = r.Version
	}
	kubernetes := versions["k8s.io/kubernetes"]
	parts := strings.SplitN(strings.TrimPrefix(kubernetes, "v"), ".", 3)
	if len(parts) != 3 {
		return nil, fmt.Errorf("it must require a version of k8s.io/kubernetes: it has %q", kubernetes)
	}
	const base = "-X k8s.io/component-base/version."
	ld := []string{"-s -w", base + "gitVersion=" + kubernetes, base + "gitMajor=" + parts[0], base +
		"gitMinor=" + parts[1]}
	// A module that is only for a control plane does not require these.
	if containerd := versions["github.com/containerd/containerd/v2"]; containerd != "" {
		ld = append(ld, "-X github.com/containerd/containerd/v2/version.Version="+containerd)
	}
	if runc := versions["github.com/opencontainers/runc"]; runc != "" {
		ld = append(ld, "-X main.version="+strings.TrimPrefix(runc, "v"))
	}
	return []string{"-trimpath", "-tags", buildTags, "-ldflags", strings.Join(ld, " ")}, nil
}

// fingerprint returns a name for the binaries that depends on all inputs to the build. If a code change in this package
// affects the build result, it must also change one of these inputs; otherwise, the stale result in the cache is used.
func (t toolchain) fingerprint(goVersion string) (string, error) {
	h := sha256.New()
	for _, f := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(t.dir, f))
		if err != nil {
			return "", err
		}
		h.Write(data) // never fails (package hash)
	}
	if _, err := fmt.Fprintln(h, goVersion, runtime.GOOS, runtime.GOARCH, t.flags); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// command returns a go command to be run in the module. It overrides environment settings that would change the result.
// runc requires CGO. Without GOWORK=off, the clone's go.work would select different versions of shared dependencies.
func (t toolchain) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=", "GOWORK=off")
	return cmd
}

// build runs go build with the output directory dir, and writes its messages to stderr.
func (t toolchain) build(ctx context.Context, dir string, stderr io.Writer) error {
	args := append([]string{"build", "-v"}, t.flags...)
	cmd := t.command(ctx, append(args, "-o", dir+string(filepath.Separator), "tool")...)
	cmd.Stderr = stderr
	return cmd.Run()
}

// packages returns the number of packages that a build without a cache compiles. If the module cache is empty, packages
// downloads the modules.
func (t toolchain) packages(ctx context.Context) (int, error) {
	out, err := t.command(ctx, "list", "-deps", "-tags", buildTags, "tool").Output()
	if err != nil {
		return 0, fmt.Errorf("cannot list what to build: %w", explain(err))
	}
	return strings.Count(string(out), "\n"), nil
}

// arrange moves the binaries to their expected names and directories. Go names a program after the last element of its
// package path, which is "server" for etcd.
func (t toolchain) arrange(dir string) error {
	if err := os.Rename(filepath.Join(dir, "server"), filepath.Join(dir, "etcd")); err != nil {
		return err
	}
	cni := filepath.Join(dir, "cni")
	if err := os.Mkdir(cni, 0o755); err != nil {
		return err
	}
	for _, tool := range t.tools {
		plugin := pluginOf(tool)
		if plugin == "" {
			continue
		}
		if err := os.Rename(filepath.Join(dir, path.Base(tool)), filepath.Join(cni, plugin)); err != nil {
			return err
		}
	}
	return nil
}

// pluginOf returns the type of the CNI plugin that a tool implements, or "" for other tools. The type may differ from
// the program name that Go chooses.
func pluginOf(tool string) string {
	switch {
	case tool == whereaboutsCmd:
		return "whereabouts"
	case strings.HasPrefix(tool, pluginsPath):
		return path.Base(tool)
	}
	return ""
}

// explain adds the error output of a failed program to its error.
func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
