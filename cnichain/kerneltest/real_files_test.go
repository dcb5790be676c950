package kerneltest

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// readOnly runs ADD calls while no files can be written: during a call, all mounts except the kernel's own file systems
// are read-only.
type readOnly struct{ executor.PluginExec }

func (e readOnly) Call(
	ctx context.Context, path string, stdin []byte, environ []string,
) (output executor.CallOutput, err error) {
	if !slices.Contains(environ, "CNI_COMMAND=ADD") {
		return e.PluginExec.Call(ctx, path, stdin, environ)
	}
	mounts, err := writableMounts()
	if err != nil {
		return output, err
	}
	defer func() { err = errors.Join(err, setReadOnly(mounts, false)) }()
	if err := setReadOnly(mounts, true); err != nil {
		return output, err
	}
	return e.PluginExec.Call(ctx, path, stdin, environ)
}

// writableMounts returns the writable mounts of file systems that outlive a process (proc_pid_mountinfo(5)), except the
// mount that contains the open journal.
func writableMounts() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	var found []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		path, options := fields[4], strings.Split(fields[5], ",")
		isKernels := path == "/proc" || path == "/sys" || path == "/dev" || path == realJournal ||
			strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/") || strings.HasPrefix(path, "/dev/") ||
			strings.HasPrefix(path, "/run/netns/") // namespaces
		if !isKernels && slices.Contains(options, "rw") {
			found = append(found, path)
		}
	}
	return found, err
}

func setReadOnly(mounts []string, want bool) error {
	attributes := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	if want {
		attributes = unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	}
	for _, path := range mounts {
		err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &attributes)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) { // another mount hides it
			return &os.PathError{Op: "mount_setattr", Path: path, Err: err}
		}
	}
	return nil
}

const staticAddress = `ipam: {type: static, addresses: [{address: 10.9.0.5/24, gateway: 10.9.0.1}], routes: [{dst: 10.8.0.0/16}]}`

// filelessChains contains chains that cover every plugin whose schema declares that it leaves no files.
var filelessChains = map[string]string{
	"macvlan":     `[{name: a, type: macvlan, config: {mode: bridge, mtu: 1400, ` + staticAddress + `}}]`,
	"ipvlan":      `[{name: a, type: ipvlan, config: {` + staticAddress + `}}]`,
	"vlan":        `[{name: a, type: vlan, config: {vlanId: 7, ` + staticAddress + `}}]`,
	"host-device": `[{name: a, type: host-device, config: {` + staticAddress + `}}]`,
	"bridge":      `[{name: a, type: bridge, config: {isGateway: true, hairpinMode: true, ` + staticAddress + `}}]`,
	"ptp":         `[{name: a, type: ptp, config: {` + staticAddress + `}}]`,
	"dummy":       `[{name: a, type: dummy, config: {` + staticAddress + `}}]`,
	"vrf":         `[{name: a, type: macvlan}, {name: b, type: vrf, dependOn: [a], config: {vrfname: red}}]`,
	"static":      `[{name: a, type: macvlan, config: {` + staticAddress + `}}]`,
}

// missingTypes returns the link types in a plan that this kernel does not support, or "".
func (l *realLab) missingTypes(plan *cnichain.Plan) string {
	for _, step := range plan.Steps {
		missing, err := cnichain.DefaultSchemas().KernelLacks([]string{step.Type}, host.MissingLinkTypes)
		l.must(err)
		if missing[step.Type] != "" {
			return missing[step.Type]
		}
	}
	return ""
}

// A plugin whose schema declares that it leaves no files works on read-only file systems.
func TestPluginsLeaveNoFiles(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	if err := os.MkdirAll(realJournal, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", realJournal, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	for name, schema := range cnichain.DefaultSchemas().All() {
		if _, tried := filelessChains[name]; tried != schema.LeavesNoFiles {
			t.Errorf("plugin %s: schema declares that it leaves no files: %v, but a chain tests this: %v", name,
				schema.LeavesNoFiles, tried)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(filelessChains)) {
		t.Run(name, func(t *testing.T) {
			p := onReadOnly(t, filelessChains[name])
			for _, step := range p.attachment.Steps {
				if !step.Step.LeavesNoFiles {
					t.Errorf("the plan declares that step %s leaves files", step.Step.Name)
				}
			}
			p.add()
			p.del()
		})
	}
	t.Run("host-local", func(t *testing.T) { // which leaves files
		p := onReadOnly(t, `[{name: a, type: macvlan, config: {ipam: {type: host-local, dataDir: /var/lib/leases,
			ranges: [[{subnet: 10.1.0.0/24}]]}}}]`)
		if p.attachment.Steps[0].Step.LeavesNoFiles {
			t.Error("the plan declares that it leaves no files")
		}
		p.refused("read-only file system")
	})
}

// onReadOnly returns a pod with a chain whose devices are links on the host. The pod's lab runs ADD while no files can
// be written.
func onReadOnly(t *testing.T, steps string) *realPod {
	t.Helper()
	l := newRealLab(t, readOnly{})
	l.uplink("up0")
	l.bridge("br0")
	uplink := "up0"
	if strings.Contains(steps, "type: bridge") {
		uplink = "br0"
	}
	root := l.shared("a", uplink)
	if strings.Contains(steps, "type: host-device") {
		root = l.exclusive("a", uplink)
	}
	root.Device.CNIs = append(root.Device.CNIs, "dummy", "ipvlan", "vlan")
	plan := l.plan("files", steps, root)
	if missing := l.missingTypes(&plan); missing != "" {
		t.Skip(missing)
	}
	return l.pod("files", plan)
}
