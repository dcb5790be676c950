// Command sriov is a test plugin that keeps the documented contract of the CNI plugin of that name: it moves an SR-IOV
// virtual function into a pod and sets what is set through its physical function. It has that plugin's known
// weaknesses, too, since they are what a driver has to live with:
//
//   - ADD keeps what it needs for DEL only at its very end, and leaves settings behind when one of them is refused.
//   - DEL without a namespace (CNI_NETNS is empty) says yes, and neither resets the function nor lets go of it.
//   - DEL of what it has no record of says yes and does nothing; and a DEL that fails removes its record all the same.
//   - DEL always writes back the administrative address, also when ADD has set none. igb's driver then refuses others to the function.
//   - DEL resets the settings first and moves the link second, and looks for the physical function by its name of ADD's time.
//   - Locks of functions stay as empty files.
//   - DEL of a function without a link (of vfio-pci) fails as long as the namespace exists.
//   - CHECK looks at nothing.
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
