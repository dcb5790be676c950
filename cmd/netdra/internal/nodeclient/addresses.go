package nodeclient

import (
	"context"
	"net/netip"
	"time"
)

// DriverAddresses are the cluster's addresses of this node, as its driver reports them; none where no driver answers.
// Links that carry them are the node's own infrastructure.
func DriverAddresses(ctx context.Context, socket string) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, addressesLimit)
	defer cancel()
	if state := ReadState(ctx, socket); state != nil {
		return state.Addresses
	}
	return nil
}

// addressesLimit is how long the driver may take to answer: without it the command still works.
const addressesLimit = 2 * time.Second
