package blocks

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Reasons for the condition BlocksAssigned.
const (
	// ReasonAssigned means that every node has enough blocks.
	ReasonAssigned = "Assigned"
	// ReasonExhausted means that nodes need blocks but all blocks are assigned.
	ReasonExhausted = "Exhausted"
	// ReasonNotAccepted means that the range is not accepted, so no blocks are assigned from it.
	ReasonNotAccepted = "NotAccepted"
	// ReasonDeleted means that the range is being deleted and is waiting for its blocks to be returned.
	ReasonDeleted = "Deleted"
)

const manyNodes = 10

// Status returns a range's status after the changes have been made. If nothing has changed, the result is the current
// status. Counts are computed from the plan, because the cache does not reflect the written changes yet.
func Status(s *State, c *Changes, problems field.ErrorList, remarks []string) v1alpha1.AddressRangeStatus {
	status := *s.Range.Status.DeepCopy()
	status.Given = int32(len(s.Blocks) + len(c.Create) - len(c.Return)) //nolint:gosec // at most 65,536
	status.Returning, status.Blocks = int32(len(c.Release)-len(c.Return)), 0
	for i := range s.Blocks {
		if s.Blocks[i].Status.ReleasedAt != nil {
			status.Returning++
		}
	}
	summary := "the range assigns no blocks"
	if s.Addresses != nil {
		status.Blocks = int32(s.Addresses.Count()) //nolint:gosec // at most 65,536
		summary = fmt.Sprintf("blocks in the range: %d, each with %d addresses", status.Blocks, s.Range.Spec.BlockSize)
	}
	meta.SetStatusCondition(&status.Conditions, conditions.Of(s.Range.Generation, summary, problems, remarks...))
	meta.SetStatusCondition(&status.Conditions, assigned(s, c, &status))
	return status
}

// assigned returns the condition that reports whether nodes have the addresses that they need. Problems that must be
// fixed first are checked first: no blocks are assigned from a range that is being deleted or is not accepted, no
// matter how many of its blocks are free.
func assigned(s *State, c *Changes, status *v1alpha1.AddressRangeStatus) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionBlocksAssigned, Status: metav1.ConditionFalse,
		ObservedGeneration: s.Range.Generation}
	switch {
	case s.Range.DeletionTimestamp != nil:
		condition.Reason, condition.Message = ReasonDeleted, fmt.Sprintf("the range is deleted after its %d remaining "+
			"blocks are returned; a block is returned %s after its node has no more claims that use the range",
			status.Given, returnDelay(s.Range))
	case s.Addresses == nil:
		condition.Reason, condition.Message = ReasonNotAccepted, "the range is not accepted, so it assigns no blocks: "+
			"see the condition Accepted"
	case len(c.Without)+len(c.Short) > 0:
		condition.Reason, condition.Message = ReasonExhausted, exhausted(c, status)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, ReasonAssigned
		condition.Message = "every node that the range selects has enough blocks"
	}
	condition.Message = conditions.Bound(condition.Message)
	return condition
}

func exhausted(c *Changes, status *v1alpha1.AddressRangeStatus) string {
	var missing []string
	if len(c.Without) > 0 {
		missing = append(missing, "nodes without a block, where pods with topologies of this range cannot start: "+
			some(c.Without))
	}
	if len(c.Short) > 0 {
		missing = append(missing, "nodes with few or no addresses left: "+some(c.Short))
	}
	return fmt.Sprintf("all %d blocks are assigned, %d of them to nodes that no longer exist; %s; enlarge cidrs, "+
		"select fewer nodes with nodeSelector, or wait until blocks are returned", status.Blocks, status.Returning,
		strings.Join(missing, "; "))
}

func some(names []string) string {
	if len(names) <= manyNodes {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:manyNodes], ", "), len(names)-manyNodes)
}
