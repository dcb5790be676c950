package host

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// write creates a file and its parent directories.
func write(t *testing.T, content string, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The files have the kernel's format: see ib_port_gid_attr_show and similar functions in
// drivers/infiniband/core/sysfs.c.
func TestGIDTableIsRead(t *testing.T) {
	const (
		empty  = "0000:0000:0000:0000:0000:0000:0000:0000"
		mapped = "0000:0000:0000:0000:0000:ffff:0a00:0001"
	)
	sysfs := t.TempDir()
	ports := filepath.Join(sysfs, "class/infiniband/mlx5_0/ports")
	write(t, "Ethernet", ports, "1/link_layer")
	write(t, "InfiniBand", ports, "2/link_layer")
	for i, line := range []string{empty, mapped + " IB/RoCE v1 net1", mapped + " RoCE v2 net1",
		mapped + " something-else net1"} {
		gid, attributes, _ := strings.Cut(line, " ")
		write(t, gid, ports, "1/gids", fmt.Sprint(i))
		if attributes != "" {
			end := strings.LastIndex(attributes, " ")
			write(t, attributes[:end], ports, "1/gid_attrs/types", fmt.Sprint(i))
			write(t, attributes[end+1:], ports, "1/gid_attrs/ndevs", fmt.Sprint(i))
		}
	}
	write(t, "fe80:0000:0000:0000:0002:c903:0000:0001", ports, "2/gids/0")
	write(t, "IB/RoCE v1", ports, "2/gid_attrs/types/0")
	write(t, "", ports, "2/gid_attrs/ndevs/0")
	table, err := readGIDTable(sysfs, "mlx5_0")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, entry := range table {
		have = append(have, fmt.Sprintf("%d/%d %s %s %s", entry.Port, entry.Index, entry.GID, entry.Type, entry.Link))
	}
	if diff := cmp.Diff([]string{"1/1 ::ffff:10.0.0.1 RoCE v1 net1", "1/2 ::ffff:10.0.0.1 RoCE v2 net1",
		"2/0 fe80::2:c903:0:1 IB "}, have); diff != "" {
		t.Errorf("table (-want +have):\n%s", diff)
	}
	write(t, "no GID", ports, "1/gids/0")
	if _, err := readGIDTable(sysfs, "mlx5_0"); err == nil || !strings.Contains(err.Error(), `"no GID" is not a GID`) {
		t.Errorf("wrong error for a file without a GID: %v", err)
	}
}

// Error messages do not depend on the sysfs instance.
func TestErrorsOfGIDTables(t *testing.T) {
	sysfs := t.TempDir()
	read := func() error {
		_, err := readGIDTable(sysfs, "mlx5_0")
		return belowSys(err, sysfs)
	}
	expect := func(start string) {
		t.Helper()
		if err := read(); !strings.HasPrefix(fmt.Sprint(err), start) {
			t.Errorf("error = %v, want it to start with %s", err, start)
		}
	}
	expect("open /sys/class/infiniband/mlx5_0/ports:")
	write(t, "", sysfs, "class/infiniband/mlx5_0/ports/1/state")
	expect("open /sys/class/infiniband/mlx5_0/ports/1/link_layer:")
	write(t, "Ethernet", sysfs, "class/infiniband/mlx5_0/ports/1/link_layer")
	expect("open /sys/class/infiniband/mlx5_0/ports/1/gids:")
	write(t, "", sysfs, "class/infiniband/mlx5_0/ports/1/gids/0/directory")
	expect("read /sys/class/infiniband/mlx5_0/ports/1/gids/0:")
}

// An application with CAP_NET_ADMIN can rename its RDMA device to any name.
func TestGIDTableOfAStrangeName(t *testing.T) {
	sysfs := t.TempDir()
	write(t, "Ethernet", sysfs, "class/elsewhere/ports/1/link_layer")
	write(t, "", sysfs, "class/infiniband/ports/x")
	for _, name := range []string{"", ".", "..", "../elsewhere"} {
		if table, err := readGIDTable(sysfs, name); err == nil || !strings.Contains(err.Error(), "is not a file name") {
			t.Errorf("device name %q: table %v, error %v", name, table, err)
		}
	}
}

// A sysfs instance that is not mounted anywhere shows the devices in its namespace, and leaves nothing behind.
func TestSysfsOfANamespace(t *testing.T) {
	path := inNewNamespace(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "here0"}, PeerName: "there0"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	peer, err := netlink.LinkByName("there0")
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := netlink.LinkSetNsFd(peer, int(other.Fd())); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	left := ""
	err = withSysfs(path, func(sysfs string) error {
		left = sysfs
		entries, err := os.ReadDir(filepath.Join(sysfs, "class/net"))
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		if diff := cmp.Diff([]string{"lo", "there0"}, names); diff != "" {
			t.Errorf("links of the namespace (-want +have):\n%s", diff)
		}
		if err := os.WriteFile(filepath.Join(sysfs, "class/net/there0/mtu"), []byte("1400"), 0); err == nil {
			t.Error("the sysfs instance is writable")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(left, "class")); err == nil {
		t.Errorf("%s still exists", left)
	}
	if after, err := os.ReadFile("/proc/self/mountinfo"); err != nil || string(after) != string(before) {
		t.Errorf("the mounts changed: %v\n%s", err, after)
	}
}

func TestLinuxHostListsAddresses(t *testing.T) {
	inNewNamespace(t)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 0xa}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "net1", HardwareAddr: mac}, PeerName: "peer0"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName("net1")
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"10.0.0.1/24", "10.0.0.2/24"} {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(link, parsed); err != nil {
			t.Fatal(err)
		}
	}
	links, err := Linux{}.Addresses(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	if err != nil {
		t.Fatal(err)
	}
	var have *cnichain.LinkAddresses
	for i := range links {
		if links[i].Name == "net1" {
			have = &links[i]
		}
	}
	if have == nil || have.Index != link.Attrs().Index || have.MAC.String() != mac.String() ||
		fmt.Sprint(have.Addresses) != "[10.0.0.1 10.0.0.2]" {
		t.Errorf("wrong links: %+v", links)
	}
}
