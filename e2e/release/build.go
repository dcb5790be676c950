package release

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// Architectures returns the architectures supported by a release, as GOARCH values.
func Architectures() []string { return []string{"amd64", "arm64"} }

const (
	// pluginModule is the module that provides the CNI plugins for the image with plugins. e2e/tools/go.mod lists the
	// plugins and pins their version.
	pluginModule  = "github.com/containernetworking/plugins"
	pluginVersion = pluginModule + "/pkg/utils/buildversion.BuildVersion"
	buildTags     = "grpcnotrace"
)

// build compiles the programs, and the CNI plugins for the image with plugins, into separate directories. Programs are
// built from the source at the commit. Plugins are third-party code in the versions specified by e2e/tools/go.mod,
// which is also part of the commit.
func (s Source) build(ctx context.Context, architecture, programs, plugins string) error {
	err := compile(ctx, s.path(), architecture, programs, "-s -w", "./cmd/...")
	if err != nil {
		return fmt.Errorf("cannot build the programs for %s: %w", architecture, err)
	}
	if err := s.checkPrograms(programs); err != nil {
		return err
	}
	version, packages, err := s.plugins(ctx)
	if err != nil {
		return fmt.Errorf("cannot read which CNI plugins are part of the release: %w", err)
	}
	err = compile(ctx, s.path("e2e", "tools"), architecture, plugins, "-s -w -X "+pluginVersion+"="+version,
		packages...)
	if err != nil {
		return fmt.Errorf("cannot build CNI plugins for %s: %w", architecture, err)
	}
	return nil
}

// compile runs go build. It sets every variable that affects the result. It also makes go ignore settings from "go env
// -w", including those for variables that are empty in the environment, which go treats as unset. GOAMD64 and GOARM64
// are set to the lowest levels, so that programs run on any processor. -trimpath removes the directory from the result,
// and -buildvcs=auto adds the commit and the tag if git is installed and the directory is a clone.
func compile(ctx context.Context, module, architecture, dir, ldflags string, packages ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-tags=" + buildTags, "-buildvcs=auto", "-mod=readonly", "-ldflags", ldflags,
		"-o", dir + string(filepath.Separator)}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOENV=off", "GOOS=linux", "GOARCH="+architecture, "GOAMD64=v1", "GOARM64=v8.0",
		"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off")
	_, err := output(cmd)
	return err
}

// checkPrograms checks that Go has recorded the version and the commit in the programs, because Go omits both if git is
// not installed. Without this check, a release could contain programs without a version, which would be noticed only
// when a user queries it.
func (s Source) checkPrograms(dir string) error {
	for _, name := range append(stack.Contents(stack.Driver), stack.Contents(stack.Controller)...) {
		info, err := buildinfo.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("cannot read program %s: %w", name, err)
		}
		if err := checkVersion(info, s.Version, s.Commit); err != nil {
			return fmt.Errorf("cannot use program %s: %w", name, err)
		}
	}
	return nil
}

// checkVersion returns an error unless a program has the given version and was built from the given commit. It reads
// the build information in the binary (debug/buildinfo), so it also works for programs for another architecture.
func checkVersion(info *debug.BuildInfo, version, commit string) error {
	if info.Main.Version != version {
		return fmt.Errorf("its version is %q, not %q", info.Main.Version, version)
	}
	for key, want := range map[string]string{"vcs.revision": commit, "vcs.modified": "false", "-trimpath": "true",
		"CGO_ENABLED": "0", "GOOS": "linux"} {
		if got := setting(info, key); got != want {
			return fmt.Errorf("%s is %q, not %q", key, got, want)
		}
	}
	return nil
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// plugins returns the version of the CNI plugins, and the paths of their packages.
func (s Source) plugins(ctx context.Context) (version string, packages []string, err error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "edit", "-json")
	cmd.Dir = s.path("e2e", "tools")
	data, err := output(cmd)
	if err != nil {
		return "", nil, err
	}
	var module struct {
		Require []struct{ Path, Version string }
		Tool    []struct{ Path string }
	}
	if err := json.NewDecoder(bytes.NewBufferString(data)).Decode(&module); err != nil {
		return "", nil, err
	}
	for _, required := range module.Require {
		if required.Path == pluginModule {
			version = required.Version
		}
	}
	for _, tool := range module.Tool {
		if strings.HasPrefix(tool.Path, pluginModule+"/") {
			packages = append(packages, tool.Path)
		}
	}
	if version == "" || len(packages) == 0 {
		return "", nil, fmt.Errorf("e2e/tools/go.mod has no plugin of %s", pluginModule)
	}
	return version, packages, nil
}

// fileNames returns the sorted names in a directory.
func fileNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	slices.Sort(names)
	return names, nil
}
