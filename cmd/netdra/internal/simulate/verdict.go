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
	// Nodes lists the nodes where the claims fit, in sorted order. The scheduler applies further criteria to select one
	// of them.
	Nodes []string
	// Results are the allocations on the first node, in claim order.
	Results []resourceapi.AllocationResult
	// Refusals explain why the claims do not fit, sorted by node. They are set only if Nodes is empty.
	Refusals []Refusal
}

// Refusal explains why claims do not fit on a node.
type Refusal struct {
	Node string `json:"node"`
	// Reason is a single sentence.
	Reason string `json:"reason"`
	// Holders describes the devices held by the blocking claims. Taken names the blocking pods and claims from the
	// simulation, and Release names the blocking claims that actually exist, as namespace/name. The new claims fit if
	// all blocking claims are removed, but not if any one of them remains. There may be other such sets of claims.
	Holders []string `json:"holders,omitempty"`
	Taken   []string `json:"taken,omitempty"`
	Release []string `json:"release,omitempty"`
}

// Try determines the nodes where a pod's claims fit, without modifying the claims. As in kube-scheduler, an already
// allocated claim keeps its devices, because several pods may reference it. These devices restrict the possible nodes,
// and only the other claims are allocated.
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

// takenElsewhere returns a refusal if a claim already has devices that are not accessible from the node; otherwise nil.
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

// withTaken returns the allocations for all claims, in claim order. results contains only the new allocations.
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

// refusal explains why claims do not fit on a node. The cheapest checks come first: it checks for too few devices, then
// for claims that would not fit even on an empty node, and finally for allocated claims that block the new ones. Only
// the last check depends on current allocations.
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
	refusal.Reason = "other claims hold the required devices"
	inTheWay, err := s.inTheWay(ctx, node, claims)
	for _, claim := range inTheWay {
		refusal.Holders = append(refusal.Holders, fmt.Sprintf("claim %s holds %s", fullName(claim), devicesOf(claim)))
		if taker, simulated := s.takers[claim.UID]; !simulated {
			refusal.Release = append(refusal.Release, fullName(claim))
		} else if !slices.Contains(refusal.Taken, taker) {
			refusal.Taken = append(refusal.Taken, taker)
		}
	}
	slices.Sort(refusal.Release)
	return refusal, err
}

func devicesOf(claim *resourceapi.ResourceClaim) string {
	var names []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		names = append(names, fmt.Sprintf("device %s of pool %s", result.Device, result.Pool))
	}
	return strings.Join(names, ", ")
}

// inTheWay returns a minimal set of claims that must be removed for the new claims to fit. Starting with no allocated
// claims, it adds each of them, oldest first, unless the new claims would no longer fit; such claims are returned. The
// allocator runs once per allocated claim, so the running time grows with the cluster; call inTheWay only for nodes
// without enough free devices. The set is minimal, but not necessarily the smallest possible.
func (s *Simulator) inTheWay(ctx context.Context, node *corev1.Node,
	claims []*resourceapi.ResourceClaim) (inTheWay []*resourceapi.ResourceClaim, err error) {
	var stay []*resourceapi.ResourceClaim
	for _, held := range s.cluster.Claims {
		with, err := s.allocate(ctx, node, claims, append(slices.Clone(stay), held))
		switch {
		case err != nil:
			return nil, err
		case with == nil:
			inTheWay = append(inTheWay, held)
		default:
			stay = append(stay, held)
		}
	}
	return inTheWay, nil
}
