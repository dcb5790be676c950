// Command bond is a test plugin that keeps the documented contract of the CNI plugin of that name: it creates a bond of
// links that are already in the pod. It also has that plugin's known weaknesses, which a driver must handle:
//
//   - ADD ignores the previous result, and names only the bond in its own.
//   - DEL fails when the namespace is gone.
//   - CHECK checks nothing, not even the bond.
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
