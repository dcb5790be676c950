package blocks

import (
	"math"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// TestClaimsOfSeveralPodsFindABlock: a claim needs a single block with enough room; it is not sufficient if two blocks
// have enough room in total.
func TestClaimsOfSeveralPodsFindABlock(t *testing.T) {
	c := newCluster(t, `{cidrs: [10.0.0.0/25], blockSize: 16, returnDelay: 10m}`)
	c.node("a")
	c.r.claims().set(c.claim("few", "a", 1))
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28")
	// The first block has 14 addresses, 8 and 1 of which are taken, leaving 5. The next block has 16, 10 of which are
	// taken, leaving 6.
	c.r.claims().set(c.claim("eight", "a", 8))
	c.r.claims().set(c.claim("ten", "a", 10))
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 a#1 10.0.0.16/28")
	c.r.claims().set(c.claim("seven", "a", 7)) // 11 are left in total, but fewer than 7 in each block
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 a#1 10.0.0.16/28", "r-2 a#1 10.0.0.32/28")
	// No block is large enough for 17 pods; the driver reports this.
	c.r.claims().set(c.claim("many", "a", 17))
	c.r.claims().forget(c.claim("ten", "a", 10))
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 a#1 10.0.0.16/28", "r-2 a#1 10.0.0.32/28")
}

// TestAddressesTellWhereRoomIs checks that known addresses are taken into account: after claims have come and gone, the
// order of the blocks no longer indicates which of them have free addresses.
func TestAddressesTellWhereRoomIs(t *testing.T) {
	c := newCluster(t, `{cidrs: [10.0.0.0/25], blockSize: 16, returnDelay: 10m}`)
	c.node("a")
	var early []*resourceapi.ResourceClaim
	for _, name := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		early = append(early, c.claim("early-"+name, "a", 1))
		c.r.claims().set(early[len(early)-1])
	}
	newer := []*resourceapi.ResourceClaim{c.claim("late-0", "a", 1, "10.0.0.17/25"),
		c.claim("late-1", "a", 4, "10.0.0.18/25", "10.0.0.19/25", "10.0.0.20/25", "10.0.0.21/25")}
	for _, claim := range newer {
		c.r.claims().set(claim)
	}
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 a#1 10.0.0.16/28")
	for _, claim := range early[:4] {
		c.r.claims().forget(claim)
	}
	// 8 addresses are free in the first block and 11 in the second. Without the known addresses, the numbers would be 3
	// and 16.
	c.r.claims().set(c.claim("twelve", "a", 12))
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 a#1 10.0.0.16/28", "r-2 a#1 10.0.0.32/28")
}

// TestMembersOfPodGroupsAreCounted: all pods in a gang get their addresses from one block at the same time.
func TestMembersOfPodGroupsAreCounted(t *testing.T) {
	c := newCluster(t, `{cidrs: [10.0.0.0/26], blockSize: 16, returnDelay: 10m}`)
	c.node("a")
	gang := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang", UID: "gang#1"}}
	gang.Spec.SchedulingPolicy.Gang = &schedulingapi.GangSchedulingPolicy{MinCount: 15}
	c.must(c.api.Create(t.Context(), gang))
	claim := c.claim("of-gang", "a", 0)
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{APIGroup: schedulingapi.GroupName, Resource: "podgroups", Name: "gang", UID: "gang#1"}}
	c.r.claims().set(claim)
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 a#1 10.0.0.16/28") // the first block has room for 14
	c.r.claims().set(c.claim("ten", "a", 10))
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 a#1 10.0.0.16/28")
	c.r.claims().set(c.claim("other", "a", 6))
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 a#1 10.0.0.16/28", "r-2 a#1 10.0.0.32/28")
	c.r.claims().forget(claim)
	if len(c.r.claims().sizes) > 0 {
		t.Errorf("sizes of groups without claims are kept: %v", c.r.claims().sizes)
	}
	// The size is not taken from a later PodGroup with the same name, and the size of a deleted group is unknown.
	claim.Status.ReservedFor[0].UID = "gang#0"
	c.r.claims().set(claim)
	c.reconcile()
	if got := c.r.claims().ofRange(map[string]int{"t": 1}, 16)["a"]; got != 17 {
		t.Errorf("%d addresses demanded, want 17", got)
	}
	if got := c.condition(v1alpha1.ConditionBlocksAssigned); !strings.HasPrefix(got, "True") {
		t.Error(got)
	}
}

// TestHugePodGroupTakesOneBlock: other nodes still get blocks even if a user declares a group with a billion members.
func TestHugePodGroupTakesOneBlock(t *testing.T) {
	c := newCluster(t, `{cidrs: [10.0.0.0/25], blockSize: 16, returnDelay: 10m}`)
	c.node("a")
	gang := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang", UID: "gang#1"}}
	gang.Spec.SchedulingPolicy.Gang = &schedulingapi.GangSchedulingPolicy{MinCount: math.MaxInt32}
	c.must(c.api.Create(t.Context(), gang))
	claim := c.claim("of-gang", "a", 0)
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{APIGroup: schedulingapi.GroupName, Resource: "podgroups", Name: "gang", UID: "gang#1"}}
	c.r.claims().set(claim)
	c.reconcile()
	c.node("b")
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 a#1 10.0.0.16/28", "r-2 b#2 10.0.0.32/28")
}
