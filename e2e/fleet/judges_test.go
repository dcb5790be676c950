package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// TestJudges tests the checks that other tests rely on: they must detect links that have left the host, and files and
// links left behind on a node.
func TestJudges(t *testing.T) {
	f := newFleet(t, "judges")
	n := f.nodes[0]
	onNode := func(command string) {
		t.Helper()
		if output, err := n.Exec(t.Context(), "sh", "-c", command); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
	}
	for what, commands := range map[string][2]string{
		"link":    {"ip link add stray0 type bridge", "ip link delete stray0"},
		"alias":   {"ip link set eth1 alias stray", "ip link set eth1 alias ''"},
		"address": {"ip address add 192.0.2.1/24 dev eth1", "ip address delete 192.0.2.1/24 dev eth1"},
		"file":    {"touch /run/cdi/dra.networking-stray.json", "rm /run/cdi/dra.networking-stray.json"},
		"namespace": {"ip netns add stray && ip link set eth1 netns stray",
			"ip -n stray link set eth1 netns 1 && ip link set eth1 up && ip netns delete stray"},
	} {
		onNode(commands[0])
		f.eventually(what+" is noticed", func(ctx context.Context) error {
			return noticed(ctx, n, f.before[n.NodeName()])
		})
		if what == "namespace" {
			if place := f.owned(n)[f.address(n, "eth1")]; !strings.Contains(place, "stray") {
				t.Errorf("the link is in %q, want the stray namespace", place)
			}
		}
		onNode(commands[1])
		f.asItWas()
	}
}

// noticed returns an error unless inspect detects that a node's state has changed.
func noticed(ctx context.Context, n *lab.Node, before shape) error {
	now, err := inspect(ctx, n)
	if err == nil && cmp.Equal(before, now) {
		err = errors.New("nothing is")
	}
	return err
}

func TestOwnersAreCounted(t *testing.T) {
	port := func(i int) link {
		l := link{Name: fmt.Sprintf("eth%d", i), Address: fmt.Sprintf("02:4c:41:43:01:%02x", i)}
		l.Info.Kind = "veth"
		return l
	}
	host := space{host: true}
	for i := range len(personas()) + 1 {
		host.links = append(host.links, port(i))
	}
	if places, problems := placesOf([]space{host}); len(problems) > 0 || len(places) != len(host.links) {
		t.Errorf("a node with all of its links: got places %q and problems %q, want no problems", places, problems)
	}
	if _, problems := placesOf([]space{host, {pod: "thief", links: []link{port(1)}}}); len(problems) != 1 {
		t.Errorf("a link in two places: got problems %q, want one", problems)
	}
	if _, problems := placesOf([]space{{host: true, links: host.links[1:]}}); len(problems) != 1 {
		t.Errorf("a missing link: got problems %q, want one", problems)
	}
	result := resourceapi.DeviceRequestAllocationResult{Pool: "pool", Device: "eth1"}
	claim := resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}},
	}}}
	if problems := allocatedTwice([]resourceapi.ResourceClaim{{}, claim}); len(problems) > 0 {
		t.Errorf("a device of one claim: got problems %q, want none", problems)
	}
	if problems := allocatedTwice([]resourceapi.ResourceClaim{claim, claim}); len(problems) != 1 {
		t.Errorf("a device of two claims: got problems %q, want one", problems)
	}
	share := types.UID("share")
	claim.Status.Allocation.Devices.Results[0].ShareID = &share
	if problems := allocatedTwice([]resourceapi.ResourceClaim{claim, claim}); len(problems) > 0 {
		t.Errorf("two shares of a device: got problems %q, want none", problems)
	}
}
