package netdev

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
)

// Name is the type of the plugin in a CNI configuration.
const Name = "netdev"

// Main is the plugin: it reads its order from the environment and its configuration from standard input.
func Main() {
	skel.PluginMainFuncs(functions(), version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0"),
		"CNI plugin "+Name+": moves a network device of the host into a pod")
}

func functions() skel.CNIFuncs {
	return skel.CNIFuncs{Add: add, Del: del, Check: check, Status: status, GC: collect}
}
