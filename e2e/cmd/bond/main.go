// Command bond is a test plugin that keeps the documented contract of the CNI plugin of that name: it makes a bond of
// links that are in the pod already. It has that plugin's known weaknesses, too, since they are what a driver has to
// live with:
//
//   - ADD ignores the previous result, and names only the bond in its own.
//   - DEL fails when the namespace is gone.
//   - CHECK looks at nothing, not even for the bond.
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
