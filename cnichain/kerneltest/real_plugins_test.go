package kerneltest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

// needs skips the test if a program is not installed on the host.
func (l *realLab) needs(programs ...string) {
	l.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			l.Skipf("needs %s, which a CNI plugin runs: %v", program, err)
		}
	}
}

// ownVariable is the environment variable with the directory of the project's own CNI plugins.
const ownVariable = "KERNELTEST_OWN_PLUGINS"

// onMachineWithOwn is cnitest.OnMachine for tests that use the project's own CNI plugins: those in CNI_PATH, or
// otherwise those built from this checkout.
func onMachineWithOwn(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownVariable) == "" {
		return cnitest.OnMachine(t, ownVariable+"="+ownPlugins(t))
	}
	return cnitest.OnMachine(t)
}

func ownPlugins(t *testing.T) string {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv("CNI_PATH")) {
		if _, err := os.Stat(filepath.Join(dir, "netdev")); err == nil {
			return dir
		}
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "netdev"),
		"../../cmd/dra-network-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
		t.Skipf("needs the project's CNI plugins in CNI_PATH, or the go command to build them: %v", err)
	} else if err != nil {
		t.Fatalf("cannot build the project's CNI plugins: %v\n%s", err, output)
	}
	return dir
}

// needsKind skips the test if the kernel does not support a link kind.
func (l *realLab) needsKind(link netlink.Link) {
	l.Helper()
	if err := netlink.LinkAdd(link); err != nil {
		l.Skipf("needs links of type %s: %v", link.Type(), err)
	}
	l.must(netlink.LinkDel(link))
}

const realMacvlan = `
- name: link
  type: macvlan
  config: {mode: bridge, ipam: {type: host-local, dataDir: /var/lib/leases, ranges: [[{subnet: 10.1.0.0/24}]]}}
- {name: tune, type: tuning, dependOn: [link], config: {mtu: 1400, sysctl: {net.ipv4.conf.IFNAME.forwarding: "1"}}}
- {name: rules, type: sbr, dependOn: [tune]}
`

func TestRealMacvlan(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.uplink("up0")
	both := strings.Replace(realMacvlan, "10.1.0.0/24}]", `10.1.0.0/24}], [{subnet: "fd00:1::/64"}]`, 1)
	a := l.pod("a", l.plan("first", both, l.shared("link", "up0")))
	b := l.pod("b", l.plan("first", both, l.shared("link", "up0")))
	before := l.state()
	a.add()
	b.add()
	a.has("net1 macvlan mtu=1400 up=true 10.1.0.2/24 fd00:1::2/64")
	b.has("net1 macvlan mtu=1400 up=true 10.1.0.3/24 fd00:1::3/64")
	l.leases("first.link/10.1.0.2", "first.link/10.1.0.3", "first.link/fd00:1::2", "first.link/fd00:1::3")
	a.healthy()
	a.reaches("10.1.0.2", b, "10.1.0.3")
	b.reaches("10.1.0.3", a, "10.1.0.2")
	b.reaches("fd00:1::3", a, "fd00:1::2")
	b.del()
	a.del()
	l.expect(before)
	l.empty()
}
