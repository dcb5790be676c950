package sriov

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// ovnState is where the test plugin for OVN-Kubernetes keeps its records and addresses.
const ovnState = "/var/lib/cni/networks/ovn-k8s-cni-overlay"

// ovnRecord is what that plugin must know to bring a function home.
type ovnRecord struct{ Network, Link, MAC, DeviceID string }

// Functions on a network of OVN-Kubernetes' own, as in deploy/samples: the driver tells the plugin which by its PCI
// address. The plugin gives it another MAC address and MTU, and knows what it was on the host; the driver sees to the
// rest.
func (c *cluster) acceleratesNetworks() {
	c.topology("fast", c.named(`
- name: net
  type: ovn-k8s-cni-overlay
  network: tenant-fast
  selector: {cel: 'device.attributes["dra.networking"].type == "vf" && device.attributes["dra.networking"].pfName == "PF1"'}
  config: {topology: layer2, role: secondary, netAttachDefName: default/tenant-fast, subnets: 10.82.0.0/24}`), "net")
	var want []ovnRecord
	for i := range 4 {
		attrs := c.link(c.vf(pf1, i)).Attrs()
		want = append(want, ovnRecord{Network: "tenant-fast", Link: attrs.Name, MAC: attrs.HardwareAddr.String(),
			DeviceID: c.vf(pf1, i)})
	}
	c.create("fast", "a", "b")
	c.Ready("a", "b")
	for _, name := range []string{"a", "b"} {
		c.attached(name)
		index := c.index(name, 0)
		if _, err := linkOf(want[index].DeviceID); err == nil {
			c.Errorf("the function of pod %s is on the host", name)
		}
		if diff := cmp.Diff(want[index], c.ovnRecordOf(want[index].DeviceID)); diff != "" {
			c.Errorf("what the plugin knows of the function of pod %s (-want +have):\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{"net1 device mtu 1400 up true"}, c.inside(name).links()); diff != "" {
			c.Errorf("links of pod %s (-want +have):\n%s", name, diff)
		}
		c.ovnAddress(c.inside(name), index)
	}
	a, b := c.inside("a"), c.inside("b")
	c.Logf("first message after %s", a.reaches(b, b.address("net1")))
	c.RemoveAll()
	c.Until("plugin that knows nothing of the functions any more", func(context.Context) error {
		if left := c.filesBelow(ovnState); len(left) > 0 {
			return fmt.Errorf("it still has %q", left)
		}
		return nil
	})
	c.published(publishedOfAll(4, 200))
}

// ovnRecordOf is what the plugin knows of the attachment of a function.
func (c *cluster) ovnRecordOf(address string) (found ovnRecord) {
	c.Helper()
	for _, path := range c.glob(filepath.Join(ovnState, "attachments", "*")) {
		var record ovnRecord
		data, err := os.ReadFile(path)
		c.must(errors.Join(err, json.Unmarshal(data, &record)))
		if record.DeviceID == address {
			found = record
		}
	}
	return found
}

// ovnAddress expects that a pod's function has a MAC address that is made of its IP address, and that the card knows
// it.
func (c *cluster) ovnAddress(p *pod, index int) {
	c.Helper()
	address := p.address("net1")
	want := append(net.HardwareAddr{0x0a, 0x58}, net.ParseIP(address).To4()...).String()
	var have string
	p.inside(func(handle *netlink.Handle) error {
		link, err := handle.LinkByName("net1")
		if err == nil {
			have = link.Attrs().HardwareAddr.String()
		}
		return err
	})
	if card := c.info(pf1, index).Mac.String(); !strings.HasPrefix(address, "10.82.0.") || have != want ||
		card != want {
		c.Errorf("%s has %s and %s, of which the card says %s; want an address of 10.82.0.0/24, and %s", p.path,
			address, have, card, want)
	}
}

// filesBelow are the files in a folder, which need not be there.
func (c *cluster) filesBelow(dir string) (files []string) {
	c.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Fatal(fmt.Errorf("cannot look for what is left: %w", err))
	}
	return files
}
