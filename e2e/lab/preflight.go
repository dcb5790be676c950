package lab

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// requirement is something that must be installed on the machine, together with the Debian package that provides it.
// check returns nil if the machine meets the requirement. It checks for files rather than the package, because the
// files may have been installed in another way.
type requirement struct {
	pkg   string
	check func(context.Context) error
}

// checkCompiler checks that the tools can be built. runc requires a C compiler for the part that enters namespaces
// (libcontainer/nsenter), and libseccomp to filter system calls. It is not called if the programs are in the cache.
func checkCompiler(ctx context.Context, p *progress) error {
	return require(ctx, p, []requirement{
		{"gcc", inPath("gcc")},
		{"libc6-dev", func(context.Context) error { _, err := os.Stat("/usr/include/stdio.h"); return err }},
		{"pkg-config", inPath("pkg-config")},
		{"libseccomp-dev", func(ctx context.Context) error {
			return exec.CommandContext(ctx, "pkg-config", "--exists", "libseccomp").Run()
		}},
	})
}

// checkMachine checks that a cluster can run on this machine.
func checkMachine(ctx context.Context, p *progress) error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root for its namespaces and mounts: run this as root, for example with " +
			"sudo -E")
	}
	return require(ctx, p, []requirement{
		{"busybox-static", func(context.Context) error { _, err := StaticBusybox(); return err }},
		{"iproute2", inPath("ip")}, // for users and tests that inspect the node
	})
}

// require installs packages for missing requirements where possible. Otherwise, it returns an error that lists the
// packages to install. After installing packages, it checks all requirements again, since an installed package may be
// broken.
func require(ctx context.Context, p *progress, all []requirement) error {
	missing := missing(ctx, all)
	if len(missing) == 0 {
		return nil
	}
	names := strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("this machine lacks %s: install them (Debian names), or run this as root where apt-get is",
			names)
	}
	p.step("installing Debian packages: %s", names)
	for _, args := range [][]string{{"update"},
		append([]string{"install", "-y", "--no-install-recommends"}, missing...)} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot install %s: apt-get %s: %w\n%s", names, args[0], err, out)
		}
	}
	for _, r := range all {
		if err := r.check(ctx); err != nil {
			return fmt.Errorf("%s is installed and does not work: %w", r.pkg, err)
		}
	}
	return nil
}

// missing returns the packages for requirements that the machine does not meet. Each package is listed only once, even
// if it provides several.
func missing(ctx context.Context, all []requirement) []string {
	var out []string
	for _, r := range all {
		if r.check(ctx) != nil && !slices.Contains(out, r.pkg) {
			out = append(out, r.pkg)
		}
	}
	return out
}

func inPath(name string) func(context.Context) error {
	return func(context.Context) error {
		_, err := exec.LookPath(name)
		return err
	}
}

// StaticBusybox returns the path of a statically linked busybox. The toolbox image has no dynamic loader, so a program
// with an interpreter (PT_INTERP) would not start.
func StaticBusybox() (string, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return "", err
	}
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", path, err)
	}
	defer func() { _ = f.Close() }() // used only for reading
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s needs libraries: install busybox-static", path)
		}
	}
	return path, nil
}
