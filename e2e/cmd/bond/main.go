// Command bond is a test plugin with the documented behavior of the CNI plugin of the same name: it creates a bond from
// links that are already in the pod. It also has the known weaknesses of that plugin, which a driver must handle:
//
//   - ADD ignores the previous result, and its own result contains only the bond.
//   - DEL fails if the namespace does not exist.
//   - CHECK does not check anything, not even the bond.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
)

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: add, Del: del,
		Check: func(*skel.CmdArgs) error { return nil },
	}, version.PluginSupports("0.3.1", "0.4.0", "1.0.0"), "bond (test plugin)")
}
