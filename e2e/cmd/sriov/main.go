// Command sriov is a test plugin with the documented behavior of the CNI plugin of the same name: it moves an SR-IOV
// virtual function into a pod and applies settings through its physical function. It also has that plugin's known
// weaknesses, which a driver must handle:
//
//   - ADD records the data for DEL only at its very end, and keeps earlier settings if a later setting is rejected.
//   - DEL without a namespace (CNI_NETNS is empty) succeeds, but neither resets nor releases the function.
//   - DEL without a record succeeds and does nothing. A DEL that fails still removes its record.
//   - DEL always restores the administrative address, even if ADD did not set one. With igb, the function then no
//     longer accepts other addresses.
//   - DEL resets the settings before it moves the link, and looks up the physical function by the name that it had
//     at ADD.
//   - The lock files for functions remain as empty files.
//   - DEL for a function without a link (bound to vfio-pci) fails while the namespace exists.
//   - CHECK does not check anything.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
)

func main() {
	p := plugin{state: "/var/lib/cni/sriov", pci: "/sys/bus/pci/devices"}
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: p.add, Del: p.del,
		Check: func(*skel.CmdArgs) error { return nil },
	}, version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0"), "sriov (test plugin)")
}
