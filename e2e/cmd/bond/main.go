// Command bond is a test plugin with the documented behavior of the CNI plugin of that name: it creates a bond of links
// that are already in the pod. It also has that plugin's known weaknesses, which a driver must handle:
//
//   - ADD ignores the previous result, and returns only the bond in its own.
//   - DEL fails if the namespace does not exist.
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
