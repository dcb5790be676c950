package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// apt runs apt-get with a separate root: it neither reads nor changes the installed packages. The status file in this
// root is empty, so that apt-get fetches all dependencies, including packages that are already installed on the host.
// No other process uses these directories, so apt needs no lock and does not wait for the system's apt-get.
type apt struct {
	dir    string
	mirror string
}

// newApt creates the root in dir, for packages from the given suites. An empty mirror means the mirror that this
// machine's apt uses. If Debian's keyring is not installed, the keys that this machine trusts are used instead. In both
// cases, packages without a valid signature are rejected.
func newApt(ctx context.Context, dir, mirror string, suites []string) (*apt, error) {
	if mirror == "" {
		var err error
		if mirror, err = ownMirror(ctx); err != nil {
			return nil, err
		}
	}
	a := &apt{dir: dir, mirror: mirror}
	for _, sub := range []string{"parts", "lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	signed := ""
	if _, err := os.Stat(keyring); err == nil {
		signed = "[signed-by=" + keyring + "] "
	}
	sources := ""
	for _, suite := range suites {
		sources += fmt.Sprintf("deb %s%s %s main\n", signed, mirror, suite)
	}
	for name, text := range map[string]string{"status": "", "sources.list": sources} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// ownMirror returns the Debian mirror that this machine's apt uses.
func ownMirror(ctx context.Context) (string, error) {
	output, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)",
		"Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("cannot ask apt for a mirror of Debian: %w", explain(err))
	}
	for uri := range strings.Lines(string(output)) {
		if uri = strings.TrimSpace(uri); strings.HasSuffix(strings.TrimSuffix(uri, "/"), "/debian") {
			return uri, nil
		}
	}
	return "", errors.New("apt has no mirror of Debian on this machine: name one")
}

// run runs apt-get in the root and returns its standard output. Errors include apt-get's standard error. Recommended
// packages are omitted, because they would double the size of the image.
func (a *apt) run(ctx context.Context, args ...string) (string, error) {
	settings := []string{
		"Dir::Etc::sourcelist=" + filepath.Join(a.dir, "sources.list"), "Dir::Etc::sourceparts=" +
			filepath.Join(a.dir, "parts"),
		"Dir::Etc::preferences=/dev/null", "Dir::Etc::preferencesparts=" + filepath.Join(a.dir, "parts"),
		"Dir::State::Lists=" + filepath.Join(a.dir, "lists"), "Dir::State::status=" + filepath.Join(a.dir, "status"),
		"Dir::Cache=" + filepath.Join(a.dir, "cache"), "APT::Install-Recommends=false",
		"APT::Keep-Downloaded-Packages=true",
		"APT::Sandbox::User=root", "APT::Architecture=amd64", "Acquire::Languages=none", "Debug::NoLocking=true",
	}
	full := []string{"--quiet=2", "--assume-yes"}
	for _, setting := range settings {
		full = append(full, "-o", setting)
	}
	cmd := exec.CommandContext(ctx, "apt-get", append(full, args...)...)
	cmd.Dir = filepath.Join(a.dir, "cache", "archives")
	var output, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("apt-get %s failed on the mirror %s: %w: %s", args[0], a.mirror, err,
			bytes.TrimSpace(problems.Bytes()))
	}
	return output.String(), nil
}

// fetch downloads the packages for an image and its kernel, and returns the files and the kernel version. It determines
// the kernel's release by simulating the installation of the kernel's meta package, and then downloads the kernel
// packages without their dependencies.
func (a *apt) fetch(ctx context.Context, p *parts) ([]string, kernelVersion, error) {
	var kernel kernelVersion
	if _, err := a.run(ctx, "update"); err != nil {
		return nil, kernel, err
	}
	if _, err := a.run(ctx, append([]string{"install", "--download-only"}, p.packages...)...); err != nil {
		return nil, kernel, err
	}
	plan, err := a.run(ctx, "install", "--simulate", "--target-release", p.kernelSuite, "linux-image-amd64")
	if err != nil {
		return nil, kernel, err
	}
	if kernel, err = plannedKernel(plan); err != nil {
		return nil, kernel, err
	}
	if _, err := a.run(ctx, append([]string{"download"}, kernel.packages(p.kernelPackages)...)...); err != nil {
		return nil, kernel, err
	}
	files, err := a.files()
	return files, kernel, err
}

// files returns the paths of the downloaded packages.
func (a *apt) files() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(a.dir, "cache", "archives", "*.deb"))
	slices.Sort(files)
	return files, err
}

// kernelVersion is a Debian kernel version.
type kernelVersion struct {
	// Release is the release as reported by uname, such as 6.12.1+deb13-amd64. It is part of the kernel package names.
	Release string `json:"release"`
	// Package is the version of the kernel packages, such as 6.12.1-1.
	Package string `json:"package"`
}

// packages returns this kernel's packages with the given name prefixes, in apt's syntax.
func (k kernelVersion) packages(prefixes []string) (all []string) {
	for _, prefix := range prefixes {
		all = append(all, prefix+k.Release+"="+k.Package)
	}
	return all
}

// plannedKernel finds the kernel in the output of a simulated installation, which contains "Inst linux-image-RELEASE
// (VERSION SUITE...".
func plannedKernel(plan string) (kernelVersion, error) {
	for line := range strings.Lines(plan) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "Inst" || fields[1] == "linux-image-amd64" {
			continue
		}
		if release, ok := strings.CutPrefix(fields[1], "linux-image-"); ok {
			return kernelVersion{Release: release, Package: strings.Trim(fields[2], "()")}, nil
		}
	}
	return kernelVersion{}, fmt.Errorf("apt would install no kernel: %s", plan)
}

// unpack unpacks packages into root without installing them. Maintainer scripts do not run, so the packages' users,
// alternatives and services do not exist: the guest writes the few files that programs expect.
func unpack(ctx context.Context, root string, files []string) error {
	if err := os.MkdirAll(filepath.Join(root, "usr"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} { // as on every installed system
		if err := os.Mkdir(filepath.Join(root, "usr", name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	for _, file := range files {
		if output, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", file, root).CombinedOutput(); err != nil {
			return fmt.Errorf("cannot unpack %s: %w: %s", filepath.Base(file), err, bytes.TrimSpace(output))
		}
	}
	return nil
}

// explain adds the error output of a failed program to its error.
func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}
