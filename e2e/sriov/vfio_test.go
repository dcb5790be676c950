package sriov

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// opener is the command for a container that opens all of its VFIO groups, in the same way as an application that
// drives the devices.
const opener = `exec 9<>/dev/vfio/vfio; for f in /dev/vfio/[0-9]*; do exec 8<>$f || exit 1; done; exec sleep 86400`

// application creates a topology for applications that drive virtual functions on a NIC themselves.
func (c *cluster) application(name, nic string) {
	c.Helper()
	c.topology(name, c.named(fmt.Sprintf(`
- name: nic
  type: sriov
  selector: {cel: 'device.attributes["dra.networking"].pfName == "%s"'}
  driver: vfio-pci
  config: {vlan: 55, trust: "on", spoofchk: "off"}`, nic)), "nic")
}

func driverOf(address string) string {
	target, err := os.Readlink(testbench.SysPCI(address, "driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// group returns the path of the device node for a function's VFIO group.
func (c *cluster) group(address string) string {
	c.Helper()
	target, err := os.Readlink(testbench.SysPCI(address, "iommu_group"))
	c.must(err)
	return "/dev/vfio/" + filepath.Base(target)
}

// opened returns the device nodes that a pod's main process has open.
func (c *cluster) opened(pod string) []string {
	c.Helper()
	var paths []string
	for _, path := range c.glob(filepath.Join(c.process(pod), "fd/*")) {
		if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, "/dev/vfio/") {
			paths = append(paths, target)
		}
	}
	slices.Sort(paths)
	return paths
}

// Applications that drive virtual functions themselves get the device nodes. While a pod has the functions, they are
// bound to the application's driver and have the settings that the plugin applies through the physical function. A
// function that an administrator has already bound to this driver stays bound afterwards.
func (c *cluster) givesFunctionsToApplications() {
	prepared := c.VF(pf1, 0)
	c.bind(prepared, "vfio-pci")
	c.Cleanup(func() {
		if driverOf(prepared) == "vfio-pci" {
			c.bind(prepared, "")
		}
	})
	c.published(publishedOfAll(4, 200)) // published as before
	before := c.functionState()
	c.application("bound", "PF0")
	c.topology("prepared", fmt.Sprintf(`
- name: nic
  type: sriov
  selector: {cel: 'device.attributes["dra.networking"].pciAddress == "%s"'}
  driver: vfio-pci
  claimParameters: [mac]
  config: {vlan: 56}`, prepared), "nic")
	const wanted = "02:00:00:00:56:03"
	c.Apply(fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: addressed}
spec:
  spec:
    devices:
      requests: [{name: nic, exactly: {deviceClassName: prepared-nic}}]
      config:
      - requests: [nic]
        opaque:
          driver: dra.networking
          parameters: {apiVersion: networking.dra.io/v1alpha1, kind: ClaimParameters, mac: %q}
`, wanted))
	c.createWith(opener, "bound", "one", "two")
	c.createWith(opener, "addressed", "three")
	c.Ready("one", "two", "three")
	for pod, nic := range map[string]string{"one": pf0, "two": pf0, "three": pf1} {
		c.attached(pod)
		address := c.VF(nic, c.index(pod, 0))
		if driver := driverOf(address); driver != "vfio-pci" {
			c.Errorf("driver of the function of pod %s = %q, want vfio-pci", pod, driver)
		}
		if diff := cmp.Diff([]string{c.group(address), "/dev/vfio/vfio"}, c.opened(pod)); diff != "" {
			c.Errorf("device nodes that pod %s could open (-want +have):\n%s", pod, diff)
		}
		if links := c.inside(pod).Links(); len(links) > 0 {
			c.Errorf("pod %s has links %q, want none", pod, links)
		}
	}
	if have, want := c.settings(pf0, c.index("one", 0)),
		"vlan 55 qos 0 spoofchk false trust true rate 0"; have != want {
		c.Errorf("settings of the function of pod one = %q, want %q", have, want)
	}
	if have, want := c.settings(pf1, 0), "vlan 56 qos 0 spoofchk true trust false rate 0"; have != want {
		c.Errorf("settings of the function of pod three = %q, want %q", have, want)
	}
	if have := c.info(pf1, 0).Mac.String(); have != wanted {
		c.Errorf("MAC address of the function of pod three = %s, want %s as claimed", have, wanted)
	}
	c.RemoveAll()
	c.Until("functions as they were, the prepared one too", func(ctx context.Context) error {
		return errors.Join(c.different(before), kubenode.Forgotten(ctx))
	})
	if driver := driverOf(prepared); driver != "vfio-pci" {
		c.Errorf("driver of the administrator's function = %q, want vfio-pci", driver)
	}
	// Without this manual cleanup, the function's next owner could not change its address.
	c.must(netlink.LinkSetVfHardwareAddr(c.LinkOf(pf1), 0, make(net.HardwareAddr, 6)))
	c.bind(prepared, "")
	c.before = c.functionState() // the kernel has assigned a new name and address to this function
	// the plugin's records for namespaces with functions; the plugin ignores records for namespaces that no longer
	// exist
	c.must(os.RemoveAll(pluginState))
}

// Our driver is killed as soon as a function is no longer bound to its original driver, as soon as it is bound to this
// driver again, and as soon as the plugin has recorded the function's namespace. In this mode, the plugin's DEL does
// not remove the record, which must not block the next attempt.
func (c *cluster) killsDriverWhileItBinds() {
	c.application("bound", "PF0")
	functions := []string{c.VF(pf0, 0), c.VF(pf0, 1)}
	hasOwnDriver := func(address string) bool { return driverOf(address) == "igbvf" }
	c.createWith(opener, "bound", "unbound")
	c.soon("a function without its driver", func() bool {
		return !hasOwnDriver(functions[0]) ||
			!hasOwnDriver(functions[1])
	})
	c.KillDriver()
	c.Ready("unbound")
	c.Remove("unbound")
	c.soon("functions with their driver", func() bool {
		return hasOwnDriver(functions[0]) &&
			hasOwnDriver(functions[1])
	})
	c.KillDriver()
	c.Gone("unbound")
	c.must(os.RemoveAll(pluginState)) // so that the next record is a new one
	c.createWith(opener, "bound", "noted")
	c.soon("a note of the plugin", func() bool { return len(c.glob(filepath.Join(pluginState, "*-net1"))) > 0 })
	c.KillDriver()
	c.Ready("noted")
	c.RemoveAll()
	c.Until("functions as they were",
		func(ctx context.Context) error { return errors.Join(c.different(c.before), kubenode.Forgotten(ctx)) })
	c.must(os.RemoveAll(pluginState))
}

// soon polls without pausing, to detect a state that lasts only briefly.
func (c *cluster) soon(what string, seen func() bool) {
	c.Helper()
	for deadline := time.Now().Add(clusterPatience); time.Now().Before(deadline); {
		if seen() {
			return
		}
	}
	c.Explain()
	c.Fatalf("timed out waiting for %s after %s", what, clusterPatience)
}
