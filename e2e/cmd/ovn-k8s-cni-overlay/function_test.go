package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// TestFunctionGoesAndComesHome with a veth in place of a virtual function: that it is one is what a folder says.
func TestFunctionGoesAndComesHome(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	const address, mac = "0000:41:10.0", "02:00:00:00:00:07"
	p := plugin{state: t.TempDir(), pci: t.TempDir()}
	for _, dir := range []string{"physfn", "net/vf0"} {
		if err := os.MkdirAll(filepath.Join(p.pci, address, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	host, pod := namespace(t), namespace(t)
	stdin, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "fast", "topology": layer2,
		"netAttachDefName": "ns/fast",
		"subnets":          "192.0.2.0/24", "deviceID": address})
	if err != nil {
		t.Fatal(err)
	}
	args := &skel.CmdArgs{ContainerID: "box", Netns: fmt.Sprintf("/proc/self/fd/%d", pod.Fd()), IfName: "net1",
		StdinData: stdin,
		Args:      "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_INFRA_CONTAINER_ID=box;K8S_POD_UID=1"}
	inside := func(where ns.NetNS, name string) netlink.Link {
		var link netlink.Link
		do(t, where, func() (err error) { link, err = netlink.LinkByName(name); return unlessGone(err) })
		return link
	}
	do(t, host, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "vf0"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "vf0p"}); err != nil {
			return err
		}
		link, err := netlink.LinkByName("vf0")
		if err != nil {
			return err
		}
		return setMAC(link, mac)
	})
	do(t, host, func() error { return p.add(args) })
	given := inside(pod, "net1")
	if given == nil || inside(host, "vf0") != nil ||
		!strings.HasPrefix(given.Attrs().HardwareAddr.String(), "0a:58:c0:00:02:") {
		t.Fatalf("the function is not in the pod: %+v", given)
	}
	for range 2 { // DEL may come again
		do(t, host, func() error { return p.del(args) })
		if home := inside(host, "vf0"); home == nil || home.Attrs().HardwareAddr.String() != mac {
			t.Fatalf("the function came home as %+v", home)
		}
	}
	if left, err := filepath.Glob(filepath.Join(p.state, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func namespace(t *testing.T) ns.NetNS {
	t.Helper()
	made, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	return made
}

func do(t *testing.T, where ns.NetNS, what func() error) {
	t.Helper()
	if err := where.Do(func(ns.NetNS) error { return what() }); err != nil {
		t.Fatal(err)
	}
}
