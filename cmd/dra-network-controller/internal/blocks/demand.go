package blocks

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// place is a topology on a node. Claims do not refer to ranges directly. A claim's range is found through its topology,
// whose steps may change during the claim's lifetime.
type place struct{ node, topology string }

// use is a claim's demand: the number of instances of each topology per pod, the number of pods, and the addresses that
// are already assigned.
type use struct {
	created time.Time // only used for sorting; not comparable between API servers
	// seen is when this process first observed the claim's demand.
	seen      time.Duration
	instances map[place]int
	pods      int
	// group is the PodGroup that the pods belong to, if any. The group counts as one pod until its size is known.
	group     Group
	addresses []string
}

// Group identifies a PodGroup that claims are reserved for (KEP-5729). It includes the UID because a PodGroup that is
// recreated with the same name may have a different size.
type Group struct {
	Namespace, Name string
	UID             types.UID
}

// demand tracks how many addresses claims use on each node. It is notified of every change to a claim, so that a plan
// does not need to inspect all claims. It is safe for concurrent use.
//
// Invariant: instances is the sum of instances × pods over byClaim, where pods is the result of podsOf at the time of
// the last change. Before a claim or a group's size changes, the old amount is subtracted; afterwards, the new amount
// is added.
type demand struct {
	mu        sync.Mutex
	byClaim   map[types.UID]use
	instances map[place]int // the total for all pods of all claims
	// shared is the set of claims for several pods or for a PodGroup. There are few such claims, and each of their
	// steps uses a single block.
	shared map[types.UID]bool
	// sizes maps each PodGroup to the number of its pods.
	sizes map[Group]int
	// elapsed returns the monotonic time since the process started.
	elapsed func() time.Duration
}

func newDemand(elapsed func() time.Duration) *demand {
	return &demand{byClaim: map[types.UID]use{}, instances: map[place]int{}, shared: map[types.UID]bool{},
		sizes: map[Group]int{}, elapsed: elapsed}
}

// useOf returns a claim's demand. A claim that the driver rejects has no demand. A step that is instantiated several
// times uses one address per instance. The steps of a topology are instantiated together, so the most frequent step
// determines the number of instances.
func useOf(claim *resourceapi.ResourceClaim) use {
	found := use{created: claim.CreationTimestamp.Time, instances: map[place]int{}}
	devices, err := claimspec.Devices(claim)
	if err != nil {
		return found
	}
	type root struct {
		place
		step string
	}
	perStep := map[root]int{}
	// A claim that is allocated but not yet reserved will soon get its first pod.
	found.pods = max(1, len(claim.Status.ReservedFor))
	for _, reference := range claim.Status.ReservedFor {
		if reference.APIGroup == schedulingapi.GroupName && reference.Resource == "podgroups" {
			found.group = Group{Namespace: claim.Namespace, Name: reference.Name, UID: reference.UID}
		}
	}
	for i := range devices {
		spot := root{place{nodeOf(devices[i].Pool), devices[i].Class.NetworkTopologyRef.Name}, devices[i].Class.Step}
		perStep[spot]++
		found.instances[spot.place] = max(found.instances[spot.place], perStep[spot])
	}
	for i := range claim.Status.Devices {
		device := &claim.Status.Devices[i]
		if device.Driver == v1alpha1.DriverName && device.NetworkData != nil {
			found.addresses = append(found.addresses, device.NetworkData.IPs...)
		}
	}
	return found
}

// nodeOf returns the name of the node that a pool belongs to. The driver names pools <node>/<device>, and node names
// cannot contain a slash (RFC 1123).
func nodeOf(pool string) string {
	node, _, _ := strings.Cut(pool, "/")
	return node
}

// set records a claim's current demand. If the change requires ranges to be reconciled, set returns the claim's current
// and previous topologies.
func (d *demand) set(claim *resourceapi.ResourceClaim) []string {
	return d.replace(claim.UID, useOf(claim))
}

func (d *demand) forget(claim *resourceapi.ResourceClaim) []string {
	return d.replace(claim.UID, use{})
}

// replace sets a claim's demand, or removes it if now is empty. It returns the topologies whose ranges must be
// reconciled. For most claim updates, which only change a condition or an address, there are none.
func (d *demand) replace(uid types.UID, now use) (topologies []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// The order matters: the old amount must be subtracted while the size of its group is still known, and the new
	// demand may belong to the same group.
	before := d.byClaim[uid]
	d.add(before, -1)
	delete(d.byClaim, uid)
	delete(d.shared, uid)
	if len(now.instances)+len(now.addresses) > 0 {
		if now.seen = before.seen; len(before.instances)+len(before.addresses) == 0 {
			now.seen = d.elapsed()
		}
		d.byClaim[uid] = now
		if now.pods > 1 || now.group != (Group{}) {
			d.shared[uid] = true
		}
	}
	d.forgetSize(before.group)
	d.add(now, 1)
	if maps.Equal(before.instances, now.instances) && before.pods == now.pods && before.group == now.group &&
		(len(d.shared) == 0 || slices.Equal(before.addresses, now.addresses)) {
		return nil // addresses only matter when blocks are returned and when shared claims are packed
	}
	for _, instances := range []map[place]int{before.instances, now.instances} {
		for spot := range instances {
			topologies = append(topologies, spot.topology)
		}
	}
	slices.Sort(topologies)
	return slices.Compact(topologies)
}

func (d *demand) forgetSize(group Group) {
	for uid := range d.shared {
		if d.byClaim[uid].group == group {
			return
		}
	}
	delete(d.sizes, group)
}

// podsOf returns the number of pods that use a claim. The size of the empty group is 0, because it is never measured.
func (d *demand) podsOf(u *use) int { return max(u.pods, d.sizes[u.group]) }

// add adds a claim's demand, multiplied by sign. It deletes entries that become 0; otherwise, entries for deleted
// topologies and nodes would accumulate for the lifetime of the process.
func (d *demand) add(u use, sign int) {
	for spot, count := range u.instances {
		if d.instances[spot] += sign * count * d.podsOf(&u); d.instances[spot] == 0 {
			delete(d.instances, spot)
		}
	}
}

// unknown returns the groups of unknown size whose claims use addresses from the range that perPod belongs to.
func (d *demand) unknown(perPod map[string]int) []Group {
	d.mu.Lock()
	defer d.mu.Unlock()
	var groups []Group
	for uid := range d.shared {
		u := d.byClaim[uid]
		if _, known := d.sizes[u.group]; !known && u.group != (Group{}) && u.takes(perPod) {
			groups = append(groups, u.group)
		}
	}
	return groups
}

// takes reports whether a claim with this demand uses addresses from the range that perPod belongs to.
func (u *use) takes(perPod map[string]int) bool {
	for spot := range u.instances {
		if perPod[spot.topology] > 0 {
			return true
		}
	}
	return false
}

// resize records the size of a group. Since the caller read the size without holding the lock, claims for the group may
// have appeared in the meantime; they are also counted.
func (d *demand) resize(group Group, pods int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ofGroup []use
	for uid := range d.shared {
		if u := d.byClaim[uid]; u.group == group {
			ofGroup = append(ofGroup, u)
			d.add(u, -1)
		}
	}
	if len(ofGroup) == 0 {
		return // its claims were deleted in the meantime
	}
	d.sizes[group] = pods
	for i := range ofGroup {
		d.add(ofGroup[i], 1)
	}
}

// perPod maps each topology to the number of addresses that a pod uses from the range with the given name.
func perPod(name string, topologies []v1alpha1.NetworkTopology) map[string]int {
	counts := map[string]int{}
	for i := range topologies {
		if count := cnichain.AddressesPerPod(&topologies[i], name); count > 0 {
			counts[topologies[i].Name] = count
		}
	}
	return counts
}

// ofRange maps each node to the number of addresses that claims on it use from the range that perPod belongs to. Each
// step of a claim uses a single block, so it cannot use more addresses than there are in a block, even if the claim's
// PodGroup is arbitrarily large. add counts every pod; the second loop subtracts the excess over one block.
func (d *demand) ofRange(perPod map[string]int, blockSize int) map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := map[string]int{}
	for spot, instances := range d.instances {
		if count := instances * perPod[spot.topology]; count > 0 {
			taken[spot.node] += count
		}
	}
	for uid := range d.shared {
		u := d.byClaim[uid]
		excess := d.podsOf(&u) - max(u.pods, blockSize)
		for spot, instances := range u.instances {
			if count := instances * excess * perPod[spot.topology]; count > 0 {
				taken[spot.node] -= count
			}
		}
	}
	return taken
}

// sharedOn returns the claims that use addresses from a range, grouped by node. It only includes nodes with at least
// one claim for several pods. Claims are sorted by creation time and UID, so that every reconciliation packs them in
// the same way.
func (d *demand) sharedOn(perPod map[string]int) map[string][]Claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := map[string][]Claim{}
	for uid := range d.shared {
		u := d.byClaim[uid]
		for spot := range u.instances {
			if perPod[spot.topology] > 0 && d.podsOf(&u) > 1 {
				found[spot.node] = nil
			}
		}
	}
	if len(found) == 0 {
		return nil // the usual case: skip the loop over all claims
	}
	for uid, u := range d.byClaim {
		for spot, instances := range u.instances {
			if _, asked := found[spot.node]; asked && perPod[spot.topology] > 0 {
				found[spot.node] = append(found[spot.node], Claim{UID: uid, Created: u.created, Pods: d.podsOf(&u),
					Steps: instances * perPod[spot.topology], Addresses: u.addresses})
			}
		}
	}
	for _, claims := range found {
		slices.SortFunc(claims, func(a, b Claim) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
		})
	}
	return found
}

// watchLag is the maximum lag of the watch for claims behind the watch for blocks: a claim that is first seen within
// this time after a release may be older than the release.
const watchLag = time.Minute

// inUse reports whether pods may still use addresses from a block. released is the time when this process observed the
// release. A block is in use in two cases: a claim on its node that was observed before or shortly after that time uses
// the range, or any claim on the node has an address from the block in its status. The first check does not depend on
// the status, which a driver may be slow to write. The second check works even if the topologies have changed.
//
// Times are measured within this process, because they cannot be compared with times from the API server's clock or
// other controllers' clocks. A process that has just started treats every claim as older than the release.
//
// inUse compares the node's name rather than its UID, since claims only contain the name. Therefore, if a Node object
// is recreated, a block that was assigned to the old node stays in use while claims on the new node are about as old as
// the release: the block may be returned late, but never early.
func (d *demand) inUse(block *v1alpha1.AddressBlock, perPod map[string]int, released time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, claim := range d.byClaim {
		for spot := range claim.instances {
			if spot.node != block.Spec.NodeName {
				continue
			}
			if perPod[spot.topology] > 0 && claim.seen <= released+watchLag {
				return true
			}
			if slices.ContainsFunc(claim.addresses, func(address string) bool {
				return addresses.Contains(&block.Spec, address)
			}) {
				return true
			}
		}
	}
	return false
}

// overlapping returns the sorted names of the other ranges whose networks overlap with r's.
func overlapping(r *v1alpha1.AddressRange, all []v1alpha1.AddressRange) []string {
	var names []string
	for i := range all {
		other := &all[i]
		if other.Name != r.Name && slices.ContainsFunc(other.Spec.CIDRs, func(text string) bool {
			theirs, err := netip.ParsePrefix(text)
			return err == nil && slices.ContainsFunc(r.Spec.CIDRs, func(text string) bool {
				ours, err := netip.ParsePrefix(text)
				return err == nil && ours.Overlaps(theirs)
			})
		}) {
			names = append(names, other.Name)
		}
	}
	slices.Sort(names)
	return names
}

// releases tracks the released blocks that this process has seen. It is safe for concurrent use. The zero value is
// ready to use.
//
// The delay until a block is returned is measured here, in the monotonic time of a single process, and starts over when
// another process takes over. A timestamp in the object would have to be compared with another process's clock: if that
// clock were fast or set forward, addresses would be reassigned while pods still use them. Starting over can only delay
// a block's return.
type releases struct {
	mu      sync.Mutex
	byRange map[string]map[string]release // by range name and block name
}

// release records when this process observed the release of a block, in monotonic time.
type release struct {
	// uid is the block's UID. Its name may be reused.
	uid types.UID
	// seen is when the release was first observed. unused is when the block was last observed in use, or else equal to
	// seen.
	seen, unused time.Duration
}

// observe records the state of a range's blocks, and returns how long each released block has been unused, keyed by
// block name. Blocks that are in use are omitted.
func (r *releases) observe(
	name string, blocks []v1alpha1.AddressBlock, now time.Duration,
	inUse func(block *v1alpha1.AddressBlock, since time.Duration) bool,
) map[string]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, after, unused := r.byRange[name], map[string]release{}, map[string]time.Duration{}
	for i := range blocks {
		block := &blocks[i]
		if block.Status.ReleasedAt == nil {
			continue
		}
		seen, known := before[block.Name]
		if !known || seen.uid != block.UID {
			seen = release{uid: block.UID, seen: now, unused: now}
		}
		if inUse(block, seen.seen) {
			seen.unused = now
		} else {
			unused[block.Name] = now - seen.unused
		}
		after[block.Name] = seen
	}
	if r.byRange == nil {
		r.byRange = map[string]map[string]release{}
	}
	if r.byRange[name] = after; len(after) == 0 {
		delete(r.byRange, name)
	}
	return unused
}
