package blocks

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/objects"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const small = `{cidrs: [10.0.0.0/26], blockSize: 16, returnDelay: 10m}`

func TestEachNodeGetsABlock(t *testing.T) {
	c := newCluster(t, `{cidrs: [10.0.0.0/26, "fd00::/120"], blockSize: 16, nodeSelector: {matchLabels: {net: ""}}}`)
	c.node("b", "net")
	c.node("c")
	c.node("a", "net")
	c.reconcile()
	c.expect("r-0 a#3 10.0.0.0/28 fd00::/124", "r-1 b#1 10.0.0.16/28 fd00::10/124")
	c.reconcile()
	if got := c.condition(v1alpha1.ConditionBlocksAssigned); !strings.HasPrefix(got, "True Assigned") {
		t.Error(got)
	}
	if status := c.addressRange().Status; status.Blocks != 4 || status.Given != 2 || status.Returning != 0 {
		t.Errorf("got status %+v, want 4 blocks, 2 given, 0 returning", status)
	}
	if told := c.told(); len(told) > 0 {
		t.Errorf("got events %q for a healthy range, want none", told)
	}
}

func TestBlocksAreReturnedAfterTheDelay(t *testing.T) {
	c := newCluster(t, small)
	a := c.node("a")
	c.reconcile()
	c.delete(a)
	if next := c.reconcile(); next != 10*time.Minute {
		t.Errorf("next look in %s, want 10m", next)
	}
	c.expect("r-0 a#1 10.0.0.0/28 released")
	c.clock.Step(6 * time.Minute)
	c.node("a")
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28 released", "r-1 a#2 10.0.0.16/28")
	c.clock.Step(4 * time.Minute)
	c.reconcile()
	c.expect("r-1 a#2 10.0.0.16/28")
}

// A controller that takes over knows only the state in the objects, and measures the delay itself.
func TestAnotherControllerCountsForItself(t *testing.T) {
	c := newCluster(t, small)
	a := c.node("a")
	c.reconcile()
	c.delete(a)
	c.reconcile()
	c.clock.Step(9 * time.Minute)
	c.restart()
	if next := c.reconcile(); next != 10*time.Minute {
		t.Errorf("next look in %s, want 10m", next)
	}
	c.clock.Step(9 * time.Minute)
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28 released")
	c.clock.Step(time.Minute)
	c.reconcile()
	c.expect()
}

// TestBlocksOfPodsThatRunAreKept: the kubelet re-registers its node before the machine's pods are garbage collected.
func TestBlocksOfPodsThatRunAreKept(t *testing.T) {
	for name, test := range map[string]struct {
		status []string
		after  time.Duration // time between the release and the claim; 0 if the claim is older
		kept   bool
	}{
		"an old claim whose status was never written": {nil, 0, true},
		"a claim whose watch was behind":              {nil, watchLag, true},
		"a later claim has others' addresses":         {[]string{"10.0.0.17/26"}, watchLag + time.Second, false},
		"a later claim, by a node that was late":      {[]string{"10.0.0.3/26"}, time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, `{cidrs: [10.0.0.0/26], blockSize: 16, returnDelay: 2h}`)
			a := c.node("a")
			c.reconcile()
			c.delete(a)
			claim := c.claim("pod", "a", 1, test.status...)
			if test.after == 0 {
				c.r.claims().set(claim)
			}
			c.reconcile()
			c.clock.Step(test.after)
			c.r.claims().set(claim)
			c.reconcile()
			c.clock.Step(2*time.Hour - test.after)
			if next := c.reconcile(); test.kept && next != recheck {
				t.Errorf("next look in %s, want the recheck interval", next)
			}
			if kept := strings.Contains(c.blocks(), "r-0"); kept != test.kept {
				t.Errorf("block kept: %t, want the opposite: %s", kept, c.blocks())
			}
			c.r.claims().forget(claim)
			c.reconcile()
			c.clock.Step(2 * time.Hour) // the claim was just deleted, so its pod may still be terminating
			c.reconcile()
			c.expect()
		})
	}
}

// No decision depends on a wall clock: neither on the controllers' clocks, which may be wrong and may jump, nor on the
// API server's clock, which sets the creation time of claims.
func TestWallClocksDecideNothing(t *testing.T) {
	const hours = 5 * time.Hour
	for name, test := range map[string]struct {
		claims   time.Duration // the API server's clock relative to the first controller's
		released time.Duration // how the clock jumps before the release
		later    time.Duration // and after it
		restart  bool          // another controller's clock causes the jump
	}{
		"right":                         {},
		"API server ahead":              {claims: hours},
		"API server behind":             {claims: -hours},
		"controller falls behind":       {released: -hours},
		"controller jumps ahead":        {released: hours},
		"jumps ahead after the release": {later: hours},
		"jumps back after the release":  {later: -hours},
		"the next one is ahead":         {later: hours, restart: true},
		"the next one is behind":        {later: -hours, restart: true},
		"all differ":                    {claims: hours, released: -2 * hours, later: 3 * hours, restart: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, small)
			a := c.node("a")
			c.reconcile()
			step := func(jump time.Duration) { c.wall.SetTime(c.wall.Now().Add(jump)) }
			step(test.claims)
			claim := c.claim("pod", "a", 2) // its status has no address yet
			step(-test.claims)
			c.r.claims().set(claim)
			step(test.released)
			c.delete(a)
			c.node("a") // registered again immediately; its pods keep running
			c.reconcile()
			step(test.later)
			if test.restart {
				c.restart(claim)
			}
			for range 3 {
				c.reconcile()
				c.clock.Step(11 * time.Minute)
			}
			c.reconcile()
			if !strings.Contains(c.blocks(), "r-0 a#1") {
				t.Fatalf("the block of running pods was returned; blocks are %s", c.blocks())
			}
			c.r.claims().forget(claim)
			c.reconcile()
			c.clock.Step(9 * time.Minute)
			c.reconcile()
			if !strings.Contains(c.blocks(), "r-0 a#1") {
				t.Errorf("the block was returned early; blocks are %s", c.blocks())
			}
			c.clock.Step(time.Minute)
			c.reconcile()
			if strings.Contains(c.blocks(), "r-0") {
				t.Errorf("the block was not returned; blocks are %s", c.blocks())
			}
		})
	}
}

func TestNodesGetAnotherBlockBeforeTheyNeedIt(t *testing.T) {
	c := newCluster(t, small)
	c.node("a")
	c.reconcile()
	c.r.claims().set(c.claim("few", "a", 10)) // out of 14 in the first block, so 4 are left
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28")
	c.r.claims().set(c.claim("one", "a", 1))
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 a#1 10.0.0.16/28")
	c.r.claims().set(c.claim("many", "a", 50))
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 a#1 10.0.0.16/28", "r-2 a#1 10.0.0.32/28", "r-3 a#1 10.0.0.48/28")
	if got := c.condition(v1alpha1.ConditionBlocksAssigned); !strings.Contains(got, "few or no addresses left: a") {
		t.Error(got)
	}
}

func TestExhaustion(t *testing.T) {
	c := newCluster(t, `{cidrs: [10.0.0.0/28], blockSize: 4, exclude: [10.0.0.4/30]}`)
	a := c.node("a")
	c.node("b")
	c.node("c")
	c.node("d")
	c.r.claims().set(c.claim("many", "a", 4)) // d gets its first block before a gets its second
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/30", "r-2 b#2 10.0.0.8/30", "r-3 c#3 10.0.0.12/30")
	if got := c.condition(v1alpha1.ConditionBlocksAssigned); !strings.HasPrefix(got, "False Exhausted: all 4 blocks "+
		"are assigned, 0 of them to nodes that no longer exist; nodes without a block, where pods with topologies of "+
		"this range cannot start: d; nodes with few or no addresses left: a;") {
		t.Error(got)
	}
	if told := c.told(); len(told) != 1 || !strings.HasPrefix(told[0], "Warning Exhausted BlocksAssigned: all 4") {
		t.Errorf("got events %q, want one that says Exhausted", told)
	}
	c.r.claims().forget(c.claim("many", "a", 4))
	c.delete(a)
	c.reconcile()
	c.clock.Step(time.Hour)
	c.reconcile()
	c.expect("r-0 d#4 10.0.0.0/30", "r-2 b#2 10.0.0.8/30", "r-3 c#3 10.0.0.12/30")
	if told := c.told(); len(told) != 1 || !strings.HasPrefix(told[0], "Normal Assigned BlocksAssigned: every node") {
		t.Errorf("got events %q, want one that says Assigned", told)
	}
}

func TestRangesEndAfterTheirBlocks(t *testing.T) {
	c := newCluster(t, small)
	c.node("a")
	c.reconcile()
	claim := c.claim("pod", "a", 1)
	c.r.claims().set(claim)
	c.delete(c.addressRange())
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28") // a pod may have addresses
	c.r.claims().forget(claim)
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28 released")
	if got := c.condition(v1alpha1.ConditionBlocksAssigned); !strings.HasPrefix(got, "False Deleted") {
		t.Error(got)
	}
	c.clock.Step(10 * time.Minute)
	c.reconcile()
	c.reconcile()
	err := c.api.Get(t.Context(), types.NamespacedName{Name: "r"}, &v1alpha1.AddressRange{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the range still exists; error = %v", err)
	}
}

// TestForcedDeletion: a user removes a range's finalizer and creates another range with the same name.
func TestForcedDeletion(t *testing.T) {
	c := newCluster(t, small)
	a := c.node("a")
	c.reconcile()
	r := c.addressRange()
	r.Finalizers = nil
	c.must(c.api.Update(t.Context(), r))
	c.delete(r)
	r = &v1alpha1.AddressRange{}
	r.Name, r.UID = "r", "another"
	r.Spec = v1alpha1.AddressRangeSpec{CIDRs: []string{"10.0.0.0/26"}, BlockSize: 8}
	c.must(c.api.Create(t.Context(), r))
	c.node("b")
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28", "r-2 b#2 10.0.0.16/29") // r-1 would contain addresses of a's block
	c.delete(a)
	c.must(c.api.Delete(t.Context(), c.addressRange()))
	c.clock.Step(time.Hour)
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28 released", "r-2 b#2 10.0.0.16/29 released")
}

// TestReleaseIsFinal: a user removes the finalizer from a range that is being deleted, and recreates the range.
// Released blocks are still returned, instead of staying reserved for as long as their nodes exist.
func TestReleaseIsFinal(t *testing.T) {
	c := newCluster(t, small)
	c.node("a")
	c.reconcile()
	old := c.addressRange()
	c.delete(old)
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28 released")
	ending := c.addressRange()
	ending.Finalizers = nil
	c.must(c.api.Update(t.Context(), ending))
	again := &v1alpha1.AddressRange{Spec: old.Spec}
	again.Name, again.UID = "r", "another"
	c.must(c.api.Create(t.Context(), again))
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28 released", "r-1 a#1 10.0.0.16/28")
	c.clock.Step(time.Hour)
	c.reconcile()
	c.expect("r-1 a#1 10.0.0.16/28")
}

func TestChangesOfARangeReachItsBlocks(t *testing.T) {
	c := newCluster(t, small)
	c.node("a")
	c.reconcile()
	r := c.addressRange()
	r.Spec.CIDRs, r.Spec.Exclude = []string{"10.0.0.0/24"}, []string{"10.0.0.3", "10.0.0.200"}
	c.must(c.api.Update(t.Context(), r))
	c.reconcile()
	if spec := c.list()[0].Spec; spec.Networks[0] != "10.0.0.0/24" || len(spec.Exclude) != 1 ||
		spec.Exclude[0] != "10.0.0.3/32" || spec.CIDRs[0] != "10.0.0.0/28" {
		t.Errorf("got block spec %+v, want network 10.0.0.0/24, exclude 10.0.0.3/32, CIDR 10.0.0.0/28", spec)
	}
	r = c.addressRange()
	r.Spec.NodeSelector, r.Spec.CIDRs = nil, []string{"10.0.0.0/30"}
	c.must(c.api.Update(t.Context(), r))
	c.reconcile()
	if got := c.condition(v1alpha1.ConditionAccepted); !strings.Contains(got, "has fewer addresses than a block") {
		t.Error(got)
	}
	if got := c.condition(v1alpha1.ConditionBlocksAssigned); !strings.HasPrefix(got, "False NotAccepted") {
		t.Error(got)
	}
}

// TestNodesThatTheCacheLacksKeepTheirBlocks: the watches for different kinds are not synchronized with each other.
func TestNodesThatTheCacheLacksKeepTheirBlocks(t *testing.T) {
	c := newCluster(t, small)
	cache := &lagging{Client: c.api}
	c.must(cache.catchUp(t.Context(), cache.kinds()...)) // before there is a node
	c.node("a")
	c.reconcile()
	c.must(cache.catchUp(t.Context(), &cache.blocks, &cache.ranges))
	c.r.Client = cache
	c.reconcile()
	c.expect("r-0 a#1 10.0.0.0/28")
}

// TestCachesThatLackBlocksGiveNoOthers: a block's object exists even if it is not in the cache yet.
func TestCachesThatLackBlocksGiveNoOthers(t *testing.T) {
	c := newCluster(t, small)
	c.node("a")
	c.node("b")
	cache := &lagging{Client: c.api}
	c.must(cache.catchUp(t.Context(), cache.kinds()...)) // before there is a block
	c.reconcile()
	c.must(cache.catchUp(t.Context(), &cache.ranges))
	c.r.Client = cache
	if next := c.reconcile(); next != objects.Soon {
		t.Errorf("next look in %s, want objects.Soon", next)
	}
	c.expect("r-0 a#1 10.0.0.0/28", "r-1 b#2 10.0.0.16/28")
}
