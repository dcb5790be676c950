package nodepage

import (
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Node is a snapshot of all data about a node.
type Node struct {
	Name string
	Time time.Time
	// Source describes the origin of the data to readers.
	Source string
	// Versions describes the program versions to readers.
	Versions string
	// Asked is true if the node's driver was queried. Otherwise the holders are unknown, and Claims, Sandboxes,
	// Leftovers and Calls are empty.
	Asked    bool
	Facts    discovery.Facts
	Decision policy.Decision
	// Result contains the published slices; entries have the taints that the driver added.
	Result draslices.Result
	// CNIPlugins are the installed plugins. If it is nil, they are unknown, and all plugins are assumed to be
	// installed.
	CNIPlugins []string
	// UnusableCNIs contains, for each CNI plugin that is installed but cannot work on the node, the reason.
	UnusableCNIs map[string]string
	// Claims are the claims that the driver has prepared. The page omits the configuration in their plans because it
	// may contain secrets.
	Claims []nodestate.Claim
	// Refused are allocated claims that could not be prepared.
	Refused   []nodestate.RefusedClaim
	Sandboxes []nodestate.Sandbox
	Leftovers []executor.Leftover
	// Calls are the logged calls by claim, as namespace/name, in chronological order.
	Calls map[string][]calllog.Call
	// Found are problems on the node that other checks reported. The page omits those that it also detects itself.
	Found []Problem
	// Unread describes data that could not be read and is therefore missing from the page.
	Unread []string
}
