package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/vm/guest"
)

// ErrUnavailable means that machines cannot run on this host because an external requirement is not met. Tests are
// skipped in this case.
var ErrUnavailable = errors.New("virtual machines are not available here")

// Options specifies the content and the location of an image. The zero value is usable.
type Options struct {
	// Kind is the purpose of the image; the zero value is SRIOV.
	Kind Kind
	// CacheDir is the directory for images; empty means lab.CacheDir().
	CacheDir string
	// Mirror is the URI of a Debian mirror; empty means the mirror that this machine's apt uses.
	Mirror string
	// Progress receives a line for each step; if it is nil, the lines are discarded.
	Progress io.Writer
}

// Image is the content from which machines boot. It is read-only, so any number of machines can use it at the same
// time. It may be used concurrently.
type Image struct {
	dir   string
	parts *parts
	// mirror is the URI of a Debian mirror; empty means the mirror that this machine's apt uses.
	mirror string
	// vminit is the machines' init program.
	vminit []byte
	// accelerator is QEMU's accelerator for the machines.
	accelerator string
	progress    io.Writer
}

// Prepare creates the image, unless it is in the cache, and builds vminit. Creating an image takes about half a minute
// and downloads 160 MB. Concurrent calls wait for the one that is creating the image. The error is ErrUnavailable if an
// external requirement is not met: the architecture, Debian's tools, or a mirror. The working directory must be inside
// a clone of the project, from which vminit is rebuilt each time.
func Prepare(ctx context.Context, o Options) (*Image, error) {
	if err := checkHost(); err != nil {
		return nil, err
	}
	if o.CacheDir == "" {
		dir, err := lab.CacheDir()
		if err != nil {
			return nil, err
		}
		o.CacheDir = dir
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	image := &Image{parts: o.Kind.parts(), mirror: o.Mirror, progress: o.Progress}
	image.dir = filepath.Join(o.CacheDir, image.parts.folder())
	if err := os.MkdirAll(o.CacheDir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the cache folder: %w", err)
	}
	unlock, err := lock(ctx, image.dir+".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := os.Stat(image.dir); err != nil {
		if err := image.make(ctx); err != nil {
			return nil, err
		}
	}
	if image.vminit, err = buildInit(ctx); err != nil {
		return nil, err
	}
	image.accelerator, err = image.chooseAccelerator(ctx)
	return image, err
}

// checkHost returns an error that matches ErrUnavailable if this host cannot run machines, so that tests are skipped
// instead of failing.
func checkHost() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("%w: they need Linux on amd64, and this is %s on %s", ErrUnavailable, runtime.GOOS,
			runtime.GOARCH)
	}
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf(
				"%w: %w; QEMU and the kernel are had as Debian packages, on a system that has Debian's tools",
				ErrUnavailable, err,
			)
		}
	}
	return nil
}

// make creates the image in a temporary directory, and renames this directory once the image is complete. The temporary
// directory has the same parent as the final one, so that it can be renamed. Documentation and locales are removed: the
// machine reads its root file system through the host, and a smaller file system is cached faster.
func (i *Image) make(ctx context.Context) error {
	tmp, err := os.MkdirTemp(filepath.Dir(i.dir), "making-vm-*")
	if err != nil {
		return fmt.Errorf("cannot make an image: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // has no effect once the directory has been renamed
	start := time.Now()
	i.printf("fetching Debian packages for virtual machines, about 160 MB, once")
	files, kernel, err := i.fetchPackages(ctx, filepath.Join(tmp, "apt"))
	if err != nil {
		return err
	}
	i.printf("unpacking %d packages", len(files))
	root := filepath.Join(tmp, "root")
	if err := unpack(ctx, root, files); err != nil {
		return err
	}
	if err := i.installKernel(ctx, tmp, root, kernel); err != nil {
		return err
	}
	for _, path := range []string{"apt", "root/usr/share/doc", "root/usr/share/man", "root/usr/share/locale",
		"root/usr/share/info", "root/boot"} {
		if err := os.RemoveAll(filepath.Join(tmp, path)); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	i.printf("the image is complete after %.0f s: %s", time.Since(start).Seconds(), i.dir)
	return os.Rename(tmp, i.dir)
}

// fetchPackages downloads the image's packages. It fails with ErrUnavailable, unless the caller has canceled it.
func (i *Image) fetchPackages(ctx context.Context, dir string) (files []string, kernel kernelVersion, err error) {
	private, err := newApt(ctx, dir, i.mirror, i.parts.suites)
	if err == nil {
		files, kernel, err = private.fetch(ctx, i.parts)
	}
	return files, kernel, unavailable(ctx, ErrUnavailable, err)
}

// unavailable wraps an error from fetching packages in the error kind, unless the caller has canceled the context.
func unavailable(ctx context.Context, kind, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("stopped while packages were fetched: %w", cause)
	}
	return fmt.Errorf("%w: %w", kind, err)
}

func (i *Image) printf(format string, args ...any) {
	// Progress messages are only informational, so an error while printing them must not interrupt the work.
	_, _ = fmt.Fprintf(i.progress, "vm: "+format+"\n", args...)
}

// installKernel writes the unpacked kernel, its version and the early modules to dir. In root, it keeps only the
// modules that machines can load, and unpacks them. Unpacking is fast on the host, whereas it would take an emulated
// processor seconds to decompress the kernel, and additional time for each module that it loads.
func (i *Image) installKernel(ctx context.Context, dir, root string, kernel kernelVersion) error {
	tree := filepath.Join(root, "usr", "lib", "modules", kernel.Release)
	image, err := os.ReadFile(filepath.Join(root, "boot", "vmlinuz-"+kernel.Release))
	if errors.Is(err, fs.ErrNotExist) { // newer packages contain it in the directory with the modules
		image, err = os.ReadFile(filepath.Join(tree, "vmlinuz"))
	}
	if err != nil {
		return fmt.Errorf("cannot find the kernel among the packages: %w", err)
	}
	unpacked, err := unpackKernel(image)
	if err != nil {
		return fmt.Errorf("cannot use the kernel %s: %w", kernel.Release, err)
	}
	about, err := json.Marshal(kernel)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"vmlinux": unpacked, kernelFile: about} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	if err := installModules(dir, tree, i.parts.modules); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(tree, "vmlinuz")); err != nil {
		return err
	}
	return depmod(ctx, root, kernel.Release)
}

// kernelFile is the file that contains the version of the image's kernel.
const kernelFile = "kernel.json"

// installModules copies the modules and all their dependencies into the image. The modules for mounting the root file
// system are in a separate directory and have numbered names, because they are loaded before modprobe is available.
func installModules(dir, tree string, modules []string) error {
	available, err := openModules(tree)
	if err != nil {
		return err
	}
	all, err := available.collect(append(earlyModules(), modules...))
	if err != nil {
		return err
	}
	early, err := available.collect(earlyModules())
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(tree, "kernel")); err != nil {
		return err
	}
	for _, m := range all {
		if err := writeFile(filepath.Join(tree, m.path), m.data); err != nil {
			return err
		}
	}
	for i, m := range early {
		if err := writeFile(filepath.Join(dir, "modules", fmt.Sprintf("%02d-%s.ko", i, m.name)), m.data); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// depmod runs the image's depmod on the image itself. It invokes the image's dynamic loader by path, with the image's
// libraries, so it works on any host and does not need root privileges.
func depmod(ctx context.Context, root, version string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(root, loader),
		"--argv0", "depmod", "--library-path", filepath.Join(root, libraries), filepath.Join(root, "usr/bin/kmod"),
		"-b", root, version)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot index kernel modules: %w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

// buildInit builds the machines' init program.
func buildInit(ctx context.Context) ([]byte, error) {
	tmp, err := os.MkdirTemp("", "vminit-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // at worst, a temporary directory is left behind
	file := filepath.Join(tmp, "vminit")
	if err := Build(ctx, file, modulePath+"/e2e/cmd/vminit"); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

const modulePath = "github.com/dra-networking/dra-network-driver"

// Build builds commands that also run in a machine. They are static, and are written to target, which is a file or an
// existing directory. The working directory must be inside a clone of the project.
func Build(ctx context.Context, target string, packages ...string) error {
	return goTool(ctx, append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", target}, packages...)...)
}

// BuildTest builds a package's test binary, which also runs in a machine.
func BuildTest(ctx context.Context, target, testedPackage string) error {
	return goTool(ctx, "test", "-c", "-ldflags", "-s -w", "-o", target, testedPackage)
}

func goTool(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(output))
	}
	return nil
}

// initialFiles writes the kernel's initial file system. It is created for each machine, because vminit is rebuilt by
// each call to Prepare. The names of the module files determine the load order.
func (i *Image) initialFiles(output io.Writer) error {
	archive := cpioWriter{output: output}
	modules := filepath.Join(i.dir, "modules")
	files, err := os.ReadDir(modules)
	if err != nil {
		return err
	}
	archive.folder(strings.TrimPrefix(guest.EarlyModules, "/"))
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(modules, file.Name()))
		if err != nil {
			return err
		}
		archive.file(strings.TrimPrefix(guest.EarlyModules, "/")+"/"+file.Name(), 0o644, data)
	}
	archive.folder("dev")
	archive.file("init", 0o755, i.vminit)
	return archive.finish()
}

// lock waits for an exclusive lock. The lock file is never removed, because otherwise two processes could hold the lock
// at the same time.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return func() { _ = file.Close() }, nil // closing releases the lock
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = file.Close() // nothing was written
			return nil, fmt.Errorf("cannot lock %s, which another process holds: %w", path, context.Cause(ctx))
		}
	}
}
