package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dra-networking/dra-network-driver/e2e/image"
	"github.com/dra-networking/dra-network-driver/e2e/internal/node"
)

// Runtime is a node's container runtime.
type Runtime string

// The container runtimes. The lab does not build CRI-O: see Options.CRIODir.
const (
	RuntimeContainerd Runtime = "containerd"
	// RuntimeCRIO is CRI-O, which runs containers with runc.
	RuntimeCRIO Runtime = "crio"
	// RuntimeCRIOCrun is CRI-O, which runs containers with crun.
	RuntimeCRIOCrun Runtime = "crio-crun"
)

// CRIO is the component on nodes that run CRI-O.
const CRIO Component = "crio"

const (
	// crioVariable is the environment variable that specifies the directory with CRI-O's programs.
	crioVariable = "CRIO_DIR"
	crioSocket   = "/run/crio/crio.sock"
	crioFile     = "crio.conf"
	// crioRuntime is the script through which CRI-O runs runc or crun; see [node.RunOCI].
	crioRuntime = "oci-runtime"
)

// ErrNoCRIO means that CRI-O's programs could not be found.
var ErrNoCRIO = errors.New("CRI-O is not available")

// crioPrograms returns the programs that a node needs for CRI-O in addition to the programs that every node needs.
// CRI-O and pinns must be in CRIODir; the other programs may also be installed on the machine.
func (r Runtime) crioPrograms() (required, optional []string) {
	required, optional = []string{"crio", "pinns"}, []string{"conmon", "skopeo"}
	if r == RuntimeCRIOCrun {
		optional = append(optional, "crun")
	}
	return required, optional
}

// checkRuntime applies the default runtime if none is set, and returns an error if the runtime's programs are missing.
func (o *Options) checkRuntime() error {
	o.Runtime = Runtime(or(string(o.Runtime), string(RuntimeContainerd)))
	switch o.Runtime {
	case RuntimeContainerd:
		return nil
	case RuntimeCRIO, RuntimeCRIOCrun:
	default:
		return fmt.Errorf("unknown container runtime %q: use %s, %s or %s", o.Runtime, RuntimeContainerd, RuntimeCRIO,
			RuntimeCRIOCrun)
	}
	if o.several() || o.elsewhere() || o.ControlPlaneOnly {
		return errors.New("the lab runs CRI-O only on the single node of this machine")
	}
	o.CRIODir = or(o.CRIODir, os.Getenv(crioVariable))
	if o.CRIODir == "" {
		return fmt.Errorf("%w: set %s to the directory with crio and pinns", ErrNoCRIO, crioVariable)
	}
	var err error
	if o.CRIODir, err = filepath.Abs(o.CRIODir); err != nil {
		return err
	}
	required, optional := o.Runtime.crioPrograms()
	for _, program := range required {
		if _, err := os.Stat(filepath.Join(o.CRIODir, program)); err != nil {
			return fmt.Errorf("%w: %w; set %s to the directory with crio and pinns", ErrNoCRIO, err, crioVariable)
		}
	}
	for _, program := range optional {
		if _, err := o.crioProgram(program); err != nil {
			return fmt.Errorf("%w: %w; install %s", ErrNoCRIO, err, program)
		}
	}
	return nil
}

// crioProgram returns the path of a program in CRIODir or, if it is not there, on the machine. It does not search
// $PATH, because programs must be at the same path on the node, where some of the machine's directories are hidden.
func (o Options) crioProgram(name string) (string, error) {
	dirs := []string{o.CRIODir, "/usr/local/bin", "/usr/bin", "/usr/libexec/podman"}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("cannot find %s in %s", name, strings.Join(dirs, ", "))
}

// RuntimeComponent returns the component that is the node's container runtime.
func (m *Machine) RuntimeComponent() Component { return m.opts.runtimeComponent() }

// Runtime returns the node's container runtime.
func (m *Machine) Runtime() Runtime {
	return Runtime(or(string(m.opts.Runtime), string(RuntimeContainerd)))
}

func (o Options) runtimeComponent() Component {
	if o.Runtime == RuntimeCRIO || o.Runtime == RuntimeCRIOCrun {
		return CRIO
	}
	return Containerd
}

// runtimeSocket returns the path of the runtime's socket on the node.
func (o Options) runtimeSocket() string {
	if o.runtimeComponent() == CRIO {
		return crioSocket
	}
	return containerdSocket
}

// runtimeFiles returns the files in the node's /etc that its runtime needs.
func (o Options) runtimeFiles() map[string]string {
	if o.runtimeComponent() != CRIO {
		return nil
	}
	return map[string]string{"/etc/containers/policy.json": `{"default": [{"type": "insecureAcceptAnything"}]}`}
}

// writeCRIO writes CRI-O's configuration and the script that CRI-O runs for each container.
func (m *Machine) writeCRIO() error {
	name := "runc"
	path := m.state.Binaries.Path(name)
	if m.opts.Runtime == RuntimeCRIOCrun {
		var err error
		if path, err = m.opts.crioProgram("crun"); err != nil {
			return err
		}
		name = "crun"
	}
	conmon, err := m.opts.crioProgram("conmon")
	if err != nil {
		return err
	}
	wrapper := filepath.Join(m.state.RunDir, crioRuntime)
	script := fmt.Sprintf("#!/bin/sh\nexec %s %s %s \"$@\"\n", filepath.Join(m.state.RunDir, helperDir, "labnode"),
		node.OCICommand, path)
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.state.RunDir, crioFile), []byte(m.opts.crioConfig(name, wrapper, conmon)), 0o600)
}

// crioConfig renders CRI-O's configuration. It deviates from CRI-O's defaults only where necessary: the node has no
// systemd, SELinux or AppArmor, images cannot be pulled, and CNI plugins are in /opt/cni/bin. Removing all containers
// after a restart with another version (internal_wipe) would require a directory that outlives the node. NET_RAW is
// added because containerd grants it by default and tests use ping.
func (o Options) crioConfig(runtime, path, conmon string) string {
	config := fmt.Sprintf(`[crio]
version_file = "/run/crio/version"
version_file_persist = ""
internal_wipe = false

[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
pinns_path = %q
apparmor_profile = "unconfined"
hooks_dir = []
default_capabilities = ["CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE",
  "KILL", "NET_RAW", "MKNOD", "SYS_CHROOT", "AUDIT_WRITE", "SETFCAP"]
default_runtime = %q

[crio.runtime.runtimes.%s]
runtime_path = %q
runtime_type = "oci"
runtime_root = "/run/%s"
monitor_path = %q
monitor_cgroup = "pod"

[crio.image]
pause_image = %q

[crio.network]
plugin_dirs = ["/opt/cni/bin/"]
`, filepath.Join(o.CRIODir, "pinns"), runtime, runtime, path, runtime, conmon, PauseImage)
	if o.NRITimeout > 0 {
		config += "\n[crio.nri]\nnri_plugin_request_timeout = " + strconv.Quote(o.NRITimeout.String()) + "\n"
	}
	return config
}

// importCRIO imports an image archive into CRI-O's storage. It copies the archive first, because skopeo cannot read
// from a pipe, and the original path may not be visible on the node.
func (m *Machine) importCRIO(ctx context.Context, path string) error {
	summary, err := image.Read(path, func(string, string, io.Reader) error { return nil })
	if err != nil {
		return err
	}
	skopeo, err := m.opts.crioProgram("skopeo")
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot import an image: %w", err)
	}
	defer func() { _ = f.Close() }() // used only for reading
	cmd := m.Command(ctx, "sh", "-c", `f=$(mktemp /var/lib/containers/import-XXXXXX) && trap 'rm -f "$f"' EXIT && `+
		`cat >"$f" && "$0" --insecure-policy copy --quiet "oci-archive:$f" "containers-storage:$1"`, skopeo, summary.Ref)
	cmd.Stdin = f
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := m.Run(cmd); err != nil {
		return fmt.Errorf("cannot import the image %s: %w: %s", path, err, out.String())
	}
	return nil
}
