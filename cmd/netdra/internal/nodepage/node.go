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

// Node is everything that is known of a node at one moment.
type Node struct {
	Name string
	Time time.Time
	// Source says where this is from, for people.
	Source string
	// Versions are those of the programs, for people.
	Versions string
	// Asked means that the driver of the node was asked. Otherwise the holders are unknown, and Claims, Sandboxes,
	// Leftovers and Calls are empty.
	Asked    bool
	Facts    discovery.Facts
	Decision policy.Decision
	// Result is what is published; entries have the taints that the driver has put on them.
	Result draslices.Result
	// CNIPlugins are those that are installed; nil if that is not known, so that all are taken to be.
	CNIPlugins []string
	// UnusableCNIs says why installed plugins can't work on the node, by CNI type.
	UnusableCNIs map[string]string
	// Claims are those that the driver has prepared. Of their plans the page shows no configuration: it may hold
	// secrets.
	Claims []nodestate.Claim
	// Refused are claims that have devices and could not be prepared.
	Refused   []nodestate.RefusedClaim
	Sandboxes []nodestate.Sandbox
	Leftovers []executor.Leftover
	// Calls are the logged ones by claim, as namespace/name, in the order in which they were made.
	Calls map[string][]calllog.Call
	// Found are problems of the node that others have found. The page leaves out those that it tells itself.
	Found []Problem
	// Unread says what could not be read, so that it is missing from the page.
	Unread []string
}
