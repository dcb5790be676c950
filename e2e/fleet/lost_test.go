package fleet

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// TestLost simulates the loss of a node: its pods are force-deleted, and the claim used by one of these pods is then
// allocated on another node. When the first node returns, it detaches the claim, which stays allocated on the other
// node.
func TestLost(t *testing.T) {
	for _, way := range []struct {
		name       string
		lose, find func(*testing.T, *lab.Node) error
		// runs is true if containers on the lost node keep running.
		runs bool
	}{
		{name: "power",
			lose: func(t *testing.T, n *lab.Node) error { return n.PowerOff(t.Context()) },
			find: func(t *testing.T, n *lab.Node) error { return n.PowerOn(t.Context()) }},
		{name: "partition", runs: true,
			lose: func(_ *testing.T, n *lab.Node) error { return n.Disconnect(lab.API) },
			find: func(_ *testing.T, n *lab.Node) error { return n.Connect(lab.API) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			f := newFleet(t, "lost-"+way.name)
			lost, other := f.nodes[0], f.nodes[1]
			t.Cleanup(func() { // the next tests need the node
				if err := errors.Join(lost.PowerOn(context.Background()), lost.Connect(lab.API)); err != nil {
					t.Error(err)
				}
			})
			f.create(documents(claim("wandering", "moved"), watchedPod("before", "resourceClaimName: wandering", lost),
				watchedPod("beside", ofTemplate("shared"), lost)))
			f.ready(nil, "before", "beside")
			f.allocatedOn("wandering", lost)

			if err := way.lose(t, lost); err != nil {
				t.Fatal(err)
			}
			f.must("delete", "pod", "before", "beside", "--force", "--grace-period=0")
			f.gone("before", "beside")
			f.create(watchedPod("after", "resourceClaimName: wandering", other))
			f.ready(nil, "after")
			f.allocatedOn("wandering", other)
			if way.runs {
				if place := f.owned(lost)[f.address(lost, "eth1")]; place != "pod before" {
					t.Errorf("the link of the node without the API server is in %q, so the test proves nothing", place)
				}
			}

			if err := way.find(t, lost); err != nil {
				t.Fatal(err)
			}
			f.eventually("the lost node has nothing of its pods", func(context.Context) error {
				if place := f.owned(lost)[f.address(lost, "eth1")]; place != "the host" {
					return fmt.Errorf("its link is in %q", place)
				}
				return nil
			})
			f.offers(lost)
			f.allocatedOn("wandering", other)
			if place := f.owned(other)[f.address(other, "eth1")]; place != "pod after" {
				t.Errorf("the link of the node that now has the claim is in %q, want \"pod after\"", place)
			}
			// The device on the first node is available again.
			f.create(watchedPod("again", ofTemplate("moved"), lost))
			f.ready(nil, "again")
			f.owned(lost)
			f.neverEarly("after", "again")
			f.statusOf("wandering", other)
			f.remove("after", "again")
			f.asItWas()
		})
	}
}
