package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Verdict says where the claims of one pod fit.
type Verdict struct {
	// Nodes are those on which the claims fit, sorted. The scheduler chooses one of them, by other criteria, too.
	Nodes []string
	// Results are what the claims get on the first of the nodes, in their order.
	Results []resourceapi.AllocationResult
	// Refusals say, if there is no node, why not for each, sorted by node.
	Refusals []Refusal
}

// Refusal explains why claims do not fit on a node.
type Refusal struct {
	Node string
	// Reason is one sentence.
	Reason string
	// Release are claims, as namespace/name, which together are in the way: without them the claims fit, and with any
	// of them they do not. There may be other such sets. Empty if nothing that is held is in the way.
	Release []string
	// Short are devices and counters that those claims hold and that are wanted.
	Short []string
	// inTheWay are the claims of Release.
	inTheWay []*resourceapi.ResourceClaim
	// instead are claims that could go in place of one of those. Where several are in the way, they are only claims
	// that got their devices in this simulation.
	instead []*resourceapi.ResourceClaim
}

// Try says where the claims of one pod fit, which are not changed. A claim that was taken before is not allocated
// again: as kube-scheduler does with a claim that several pods name, its devices choose the node, and only the others
// are allocated there.
func (s *Simulator) Try(ctx context.Context, claims ...*resourceapi.ResourceClaim) (Verdict, error) {
	var verdict Verdict
	var no []*corev1.Node
	untaken := slices.DeleteFunc(slices.Clone(claims), func(claim *resourceapi.ResourceClaim) bool {
		return s.taken[claim.UID] != nil
	})
	for _, node := range s.cluster.Nodes {
		elsewhere, err := s.takenElsewhere(node, claims)
		if err != nil {
			return Verdict{}, err
		}
		if elsewhere != nil {
			verdict.Refusals = append(verdict.Refusals, *elsewhere)
			continue
		}
		var results []resourceapi.AllocationResult
		if len(untaken) > 0 {
			results, err = s.allocate(ctx, node, untaken, s.cluster.Claims)
		}
		switch {
		case err != nil:
			return Verdict{}, err
		case results == nil && len(untaken) > 0:
			no = append(no, node)
		default:
			if verdict.Nodes == nil {
				verdict.Results = s.withTaken(claims, results)
			}
			verdict.Nodes = append(verdict.Nodes, node.Name)
		}
	}
	if verdict.Nodes != nil {
		verdict.Refusals = nil
		return verdict, nil
	}
	for _, node := range no {
		refusal, err := s.refusal(ctx, node, untaken)
		if err != nil {
			return Verdict{}, err
		}
		verdict.Refusals = append(verdict.Refusals, refusal)
	}
	slices.SortStableFunc(verdict.Refusals, func(a, b Refusal) int { return strings.Compare(a.Node, b.Node) })
	return verdict, nil
}

// takenElsewhere refuses a node on which the devices of a claim that was taken before are not; nil if there is none.
func (s *Simulator) takenElsewhere(node *corev1.Node, claims []*resourceapi.ResourceClaim) (*Refusal, error) {
	for _, claim := range claims {
		taken := s.taken[claim.UID]
		if taken == nil || taken.Status.Allocation.NodeSelector == nil {
			continue
		}
		selector, err := nodeaffinity.NewNodeSelector(taken.Status.Allocation.NodeSelector)
		if err != nil {
			return nil, fmt.Errorf("cannot read the nodes of claim %s: %w", fullName(claim), err)
		}
		if !selector.Match(node) {
			return &Refusal{Node: node.Name, Reason: fmt.Sprintf("claim %s has its devices on another node already",
				fullName(claim))}, nil
		}
	}
	return nil, nil
}

// withTaken returns the allocations of all claims in their order; results are those of claims that were not taken.
func (s *Simulator) withTaken(
	claims []*resourceapi.ResourceClaim, results []resourceapi.AllocationResult,
) []resourceapi.AllocationResult {
	all := make([]resourceapi.AllocationResult, 0, len(claims))
	for _, claim := range claims {
		if taken := s.taken[claim.UID]; taken != nil {
			all = append(all, *taken.Status.Allocation)
			continue
		}
		all, results = append(all, results[0]), results[1:]
	}
	return all
}

// refusal finds out why claims do not fit on a node. What is cheap to say is tried first.
//
// The steps: too few devices at all; not even on an empty node, and what to leave out then; and else the claims that
// are in the way. Only the last depends on what is held now.
func (s *Simulator) refusal(ctx context.Context, node *corev1.Node, claims []*resourceapi.ResourceClaim) (Refusal,
	error) {
	refusal := Refusal{Node: node.Name}
	reason, err := s.tooFew(ctx, node, claims)
	if err != nil || reason != "" {
		refusal.Reason = reason
		return refusal, err
	}
	free, err := s.allocate(ctx, node, claims, nil)
	if err != nil {
		return refusal, err
	}
	if free == nil {
		refusal.Reason, err = s.impossible(ctx, node, claims)
		return refusal, err
	}
	inTheWay, results, err := s.inTheWay(ctx, node, claims)
	if err != nil {
		return refusal, err
	}
	for _, claim := range inTheWay {
		refusal.Release = append(refusal.Release, claim.Namespace+"/"+claim.Name)
	}
	slices.Sort(refusal.Release)
	refusal.inTheWay = inTheWay
	refusal.Reason = "other claims hold what is wanted"
	refusal.Short = s.short(results, inTheWay)
	refusal.instead, err = s.instead(ctx, node, claims, inTheWay)
	return refusal, err
}

// mostTried bounds how often the allocator is asked for what could go instead.
const mostTried = 200

// instead finds the claims of a node that could go in place of one that is in the way: those who hold shares of a
// device are alike, and a user should not take those that are named for the only ones. Where several are in the way,
// only claims of this simulation are looked for, and no more than mostTried combinations are tried: each asks the
// allocator. A claim can only stand for one that came after it, since inTheWay has put back those that came first.
func (s *Simulator) instead(ctx context.Context, node *corev1.Node, claims []*resourceapi.ResourceClaim,
	inTheWay []*resourceapi.ResourceClaim) (instead []*resourceapi.ResourceClaim, err error) {
	here := map[deviceKey]bool{}
	for _, d := range s.devicesOn(node) {
		here[deviceKey{d.driver, d.pool, d.Name}] = true
	}
	tried := 0
	for place, held := range s.cluster.Claims {
		if slices.Contains(inTheWay, held) || len(inTheWay) > 1 && !s.given[held.UID] ||
			!slices.ContainsFunc(held.Status.Allocation.Devices.Results,
				func(r resourceapi.DeviceRequestAllocationResult) bool { return here[keyOf(&r)] }) {
			continue
		}
		for _, stays := range inTheWay {
			if tried == mostTried {
				return instead, nil
			}
			if slices.Index(s.cluster.Claims, stays) < place {
				continue
			}
			tried++
			remaining := slices.DeleteFunc(slices.Clone(s.cluster.Claims), func(c *resourceapi.ResourceClaim) bool {
				return c == held || c != stays && slices.Contains(inTheWay, c)
			})
			results, err := s.allocate(ctx, node, claims, remaining)
			if err != nil {
				return nil, err
			}
			if results != nil {
				instead = append(instead, held)
				break
			}
		}
	}
	return instead, nil
}

// inTheWay finds claims without which the new ones fit, none of which can stay, and what is then allocated. Each claim
// is put back if it can be, so what is left is needed; who came first stays. It runs the allocator once for each held
// claim, so it takes time that grows with the cluster; it is called for nodes without room only. The set is minimal and
// not the smallest that there is.
func (s *Simulator) inTheWay(ctx context.Context, node *corev1.Node,
	claims []*resourceapi.ResourceClaim) (inTheWay []*resourceapi.ResourceClaim, results []resourceapi.AllocationResult,
	err error) {
	results, err = s.allocate(ctx, node, claims, nil)
	if err != nil {
		return nil, nil, err
	}
	var stay []*resourceapi.ResourceClaim
	for _, held := range s.cluster.Claims {
		with, err := s.allocate(ctx, node, claims, append(slices.Clone(stay), held))
		switch {
		case err != nil:
			return nil, nil, err
		case with == nil:
			inTheWay = append(inTheWay, held)
		default:
			stay, results = append(stay, held), with
		}
	}
	return inTheWay, results, nil
}
