package sriov

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// driver is the part of the project's driver that runs chains.
type driver struct {
	*bench
	*testbench.Driver
}

func newDriver(b *bench) *driver {
	b.Helper()
	return &driver{b, b.NewDriver(executor.Options{})}
}

// cniDirs returns the plugin directories. If several directories contain the same plugin, the first one is used.
func cniDirs() []string { return filepath.SplitList(os.Getenv("CNI_PATH")) }

// device returns the virtual function at a PCI address as the device for a root step.
func device(step, address string) cnichain.Device {
	return cnichain.Device{Request: step, PCIAddress: address, Exclusive: true}
}

// function is the virtual function for a root step.
type function struct {
	step, pf string
	index    int
}

// pod is a pod to which devices can be attached.
type pod = testbench.Pod

// attach creates a pod and runs a chain for it. The name must not be longer than 8 characters.
func (d *driver) attach(name, steps string, functions ...function) *pod {
	d.Helper()
	p := d.pod(name, steps, functions...)
	p.Attach()
	return p
}

// pod creates a pod with everything that Add needs.
func (d *driver) pod(name, steps string, functions ...function) *pod {
	d.Helper()
	var devices []cnichain.Device
	for _, f := range functions {
		devices = append(devices, device(f.step, d.VF(f.pf, f.index)))
	}
	return d.Pod(name, steps, devices...)
}

// functionState describes all properties of the machine's virtual functions that a tenant could have changed.
func (b *bench) functionState() []string {
	b.Helper()
	var lines []string
	for _, pf := range []string{pf0, pf1} {
		for _, vf := range b.LinkOf(pf).Attrs().Vfs {
			address := b.VF(pf, vf.ID)
			line := address + " " + b.settings(pf, vf.ID)
			links, err := os.ReadDir(testbench.SysPCI(address, "net"))
			if err != nil || len(links) != 1 {
				lines = append(lines, line+" has no link")
				continue
			}
			attrs := b.LinkOf(address).Attrs()
			lines = append(lines, fmt.Sprintf("%s link %s %s mtu %d up %v alias %q names %v", line,
				attrs.Name, attrs.HardwareAddr, attrs.MTU, attrs.Flags&net.FlagUp != 0, attrs.Alias, attrs.AltNames))
		}
	}
	return lines
}

// expect checks that the virtual functions are back in an earlier state, and that no plugin files remain.
func (b *bench) expect(before []string) {
	b.Helper()
	if diff := cmp.Diff(before, b.functionState()); diff != "" {
		b.Errorf("virtual functions are not in their initial state (-before +now):\n%s", diff)
	}
}

// empty checks that the sriov plugin has no records. After a failed DEL, the plugin keeps a record for the namespace
// that the function was in. empty ignores such a record if the namespace no longer exists.
func (b *bench) empty() {
	b.Helper()
	b.must(filepath.WalkDir(pluginState, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "vf_lock" {
			return filepath.SkipDir // contains an empty file for each function
		}
		if filepath.Base(filepath.Dir(path)) == "pci" {
			if holder, err := os.ReadFile(path); err == nil && !(host.Linux{}).Exists(string(holder)) {
				return nil
			}
		}
		if err == nil && !entry.IsDir() {
			b.Errorf("the plugin still has the record %s", path)
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}))
}

// text formats a value for an error message.
func text(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}
