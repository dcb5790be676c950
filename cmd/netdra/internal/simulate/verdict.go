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

// Verdict is the result for the claims of one pod.
type Verdict struct {
	// Nodes are the nodes where the claims fit, sorted. The scheduler also applies other criteria to select one.
	Nodes []string
	// Results are the allocations on the first node, in the order of the claims.
	Results []resourceapi.AllocationResult
	// Refusals explain why the claims do not fit on each node, sorted by node. They are only set if Nodes is empty.
	Refusals []Refusal
}

// Refusal explains why claims do not fit on a node.
type Refusal struct {
	Node string
	// Reason is one sentence.
	Reason string
	// Release lists claims, as namespace/name, that together prevent the allocation: the new claims fit if all of them
	// are removed, and do not fit if any one of them remains. Other such sets may exist. It is empty if no allocated
	// claim is in the way.
	Release []string
	// Short describes the required devices and counters that those claims hold.
	Short []string
	// inTheWay contains the claims of Release.
	inTheWay []*resourceapi.ResourceClaim
	// instead contains claims that could be removed instead of a claim in inTheWay. If several claims are in the way,
	// it only contains claims that this simulation allocated.
	instead []*resourceapi.ResourceClaim
}

// Try returns where a pod's claims fit, without modifying them. A claim that is already allocated keeps its devices, as
// in kube-scheduler if several pods reference it: its devices restrict the nodes, and only the other claims are
// allocated.
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

// takenElsewhere returns a refusal if a claim has already been allocated devices that are not available on the node;
// otherwise nil.
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
			return &Refusal{Node: node.Name, Reason: fmt.Sprintf("claim %s already has its devices on another node",
				fullName(claim))}, nil
		}
	}
	return nil, nil
}

// withTaken returns the allocations for all claims, in order. results contains only the new allocations.
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

// refusal explains why claims do not fit on a node. It starts with the cheapest checks: first, too few devices; then,
// claims that do not even fit on an empty node; and finally, allocated claims in the way. Only the last check depends
// on current allocations.
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
	refusal.Reason = "other claims hold the required devices"
	refusal.Short = s.short(results, inTheWay)
	refusal.instead, err = s.instead(ctx, node, claims, inTheWay)
	return refusal, err
}

// mostTried limits the allocator runs in the search for alternatives.
const mostTried = 200

// instead finds claims on a node that could be removed instead of a claim in the way. All claims that hold a share are
// equivalent, and users should not assume that the named ones are the only choice. If several claims are in the way, it
// only considers claims in this simulation, and stops after mostTried combinations because each of them runs the
// allocator. A claim can only replace an earlier one, because inTheWay keeps the earliest claims that can stay.
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

// inTheWay returns a minimal set of claims that must be removed for the new claims to fit, and the resulting
// allocation. It adds the allocated claims one by one, oldest first, and keeps each one that leaves enough room. The
// allocator runs once per allocated claim, so the running time grows with the cluster; call inTheWay only for nodes
// without room. The set is minimal, but not necessarily the smallest.
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
