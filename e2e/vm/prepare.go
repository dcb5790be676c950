package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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

// recipe is the version of how images are made: whoever changes that increases it.
const recipe = "1"

// ErrUnavailable says that there can be no machine here, because something is missing that is not the project's: tests
// are skipped then.
var ErrUnavailable = errors.New("virtual machines are not available here")

// Options say where an image is kept and what it is made of. The zero value is a good one.
type Options struct {
	// CacheDir is where images are kept; empty means lab.CacheDir().
	CacheDir string
	// Mirror is the URI of a mirror of Debian; empty means that of this machine's own apt.
	Mirror string
	// Progress gets a line for every step; nil means none.
	Progress io.Writer
}

// Image is what machines boot from. It is read-only, so that any number of them can run at a time.
type Image struct {
	dir string
	// vminit is the first process of machines.
	vminit []byte
	// accelerator is what QEMU runs them with.
	accelerator string
	progress    io.Writer
}

// earlyModules are those without which the root file system can't be mounted.
func earlyModules() []string { return []string{"9p", "9pnet_virtio", "overlay"} }

// modules are those that machines can load beside earlyModules.
func modules() []string {
	return strings.Fields(`igb igbvf vfio-pci vfio_iommu_type1 virtio_net virtio_rng
		8021q bonding bridge br_netfilter dummy ifb ipvlan ipvtap macvlan macvtap openvswitch tun veth vrf vxlan
		nf_tables nft_compat nft_ct nft_chain_nat nft_masq nft_nat nft_limit nft_reject_inet nf_conntrack
		ip_tables ip6_tables iptable_filter iptable_nat xt_conntrack xt_MASQUERADE xt_comment xt_mark xt_addrtype xt_nat xt_tcpudp
		sch_ingress sch_tbf sch_htb sch_fq_codel cls_u32 cls_matchall act_mirred act_police act_vlan xfrm_user inet_diag af_packet_diag`)
}

// Prepare makes the image, unless the cache has it, and builds vminit. From nothing it takes about half a minute and
// downloads 160 MB. Several may prepare at once: the others wait.
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
	image := &Image{dir: filepath.Join(o.CacheDir, "vm-"+fingerprint()), progress: o.Progress}
	if err := os.MkdirAll(o.CacheDir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the cache folder: %w", err)
	}
	unlock, err := lock(ctx, image.dir+".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := os.Stat(image.dir); err != nil {
		if err := image.make(ctx, o.Mirror); err != nil {
			return nil, err
		}
	}
	if image.vminit, err = buildInit(ctx); err != nil {
		return nil, err
	}
	image.accelerator, err = image.chooseAccelerator(ctx)
	return image, err
}

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

// fingerprint names an image by what it is made of.
func fingerprint() string {
	all := []string{recipe, suite, strings.Join(packages(), " "), strings.Join(earlyModules(), " "),
		strings.Join(modules(), " ")}
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:])[:16]
}

// make makes the image in a folder of its own, which gets its name only when it is complete.
func (i *Image) make(ctx context.Context, mirror string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(i.dir), "making-vm-*")
	if err != nil {
		return fmt.Errorf("cannot make an image: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // gone already after the rename
	start := time.Now()
	i.printf("fetching Debian packages for virtual machines, about 160 MB, once")
	files, err := fetchPackages(ctx, filepath.Join(tmp, "apt"), mirror)
	if err != nil {
		return err
	}
	i.printf("unpacking %d packages", len(files))
	root := filepath.Join(tmp, "root")
	if err := unpack(ctx, root, files); err != nil {
		return err
	}
	if err := installKernel(ctx, tmp, root); err != nil {
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

// fetchPackages fails with ErrUnavailable, unless the caller has stopped it.
func fetchPackages(ctx context.Context, dir, mirror string) ([]string, error) {
	private, err := newApt(ctx, dir, mirror)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	files, err := private.fetch(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return nil, fmt.Errorf("stopped while packages were fetched: %w", cause)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return files, nil
}

func (i *Image) printf(format string, args ...any) {
	// Progress is for people only: that it cannot be printed must not stop the work.
	_, _ = fmt.Fprintf(i.progress, "vm: "+format+"\n", args...)
}

// installKernel puts the unpacked kernel and the early modules into dir, and leaves of the modules in root only those
// that machines can load, unpacked.
func installKernel(ctx context.Context, dir, root string) error {
	kernels, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return fmt.Errorf("want one kernel among the packages, have %q: %w", kernels, err)
	}
	image, err := os.ReadFile(kernels[0])
	if err != nil {
		return err
	}
	kernel, err := unpackKernel(image)
	if err != nil {
		return fmt.Errorf("cannot use the kernel %s: %w", filepath.Base(kernels[0]), err)
	}
	if err := os.WriteFile(filepath.Join(dir, "vmlinux"), kernel, 0o644); err != nil {
		return err
	}
	version := strings.TrimPrefix(filepath.Base(kernels[0]), "vmlinuz-")
	tree := filepath.Join(root, "usr", "lib", "modules", version)
	if err := installModules(dir, tree); err != nil {
		return err
	}
	return depmod(ctx, root, version)
}

func installModules(dir, tree string) error {
	available, err := openModules(tree)
	if err != nil {
		return err
	}
	all, err := available.collect(append(earlyModules(), modules()...))
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

// depmod runs the image's own, without entering it.
func depmod(ctx context.Context, root, version string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(root, loader),
		"--argv0", "depmod", "--library-path", filepath.Join(root, libraries), filepath.Join(root, "usr/bin/kmod"),
		"-b", root, version)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot index kernel modules: %w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

// buildInit builds the first process of machines.
func buildInit(ctx context.Context) ([]byte, error) {
	tmp, err := os.MkdirTemp("", "vminit-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a leftover in the folder for temporary files
	file := filepath.Join(tmp, "vminit")
	if err := Build(ctx, file, modulePath+"/e2e/cmd/vminit"); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

const modulePath = "github.com/dra-networking/dra-network-driver"

// Build builds commands so that they run in a machine as well: static, into the file or existing folder to. The
// working directory must be inside a clone of the project.
func Build(ctx context.Context, target string, packages ...string) error {
	return goTool(ctx, append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", target}, packages...)...)
}

// BuildTest builds the tests of a package into a file that runs in a machine.
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

// initialFiles is the file system that the kernel starts with.
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

// lock waits for an exclusive lock. The file stays: removing it would let two hold the lock.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return func() { _ = file.Close() }, nil // closing gives the lock back
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = file.Close() // nothing was written
			return nil, fmt.Errorf("cannot lock %s, which another process holds: %w", path, context.Cause(ctx))
		}
	}
}
