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

// Reasons of the condition BlocksAssigned.
const (
	// ReasonAssigned is the reason when every node has as many blocks as it needs.
	ReasonAssigned = "Assigned"
	// ReasonExhausted is the reason when nodes need blocks and all are given.
	ReasonExhausted = "Exhausted"
	// ReasonNotAccepted is the reason when the range isn't accepted and so gives no blocks.
	ReasonNotAccepted = "NotAccepted"
	// ReasonDeleted is the reason while the range is being deleted, and waits until no node has a block.
	ReasonDeleted = "Deleted"
)

// manyNodes is how many nodes a condition names.
const manyNodes = 10

// Status returns the status of a range after changes were carried out. It is equal to the one that the range has where
// nothing has changed. Counts are those after the changes, computed from the plan: the cache shows only later what was
// written, so counts of it would be wrong until the next look.
func Status(s *State, c *Changes, problems field.ErrorList, remarks []string) v1alpha1.AddressRangeStatus {
	status := *s.Range.Status.DeepCopy()
	status.Given = int32(len(s.Blocks) + len(c.Create) - len(c.Return)) //nolint:gosec // at most 65,536
	status.Returning, status.Blocks = int32(len(c.Release)-len(c.Return)), 0
	for i := range s.Blocks {
		if s.Blocks[i].Status.ReleasedAt != nil {
			status.Returning++
		}
	}
	summary := "the range gives nothing"
	if s.Addresses != nil {
		status.Blocks = int32(s.Addresses.Count()) //nolint:gosec // at most 65,536
		summary = fmt.Sprintf("blocks of the range: %d, each of %d addresses", status.Blocks, s.Range.Spec.BlockSize)
	}
	meta.SetStatusCondition(&status.Conditions,
		conditions.Of(s.Range.Generation, summary, problems, remarks...))
	meta.SetStatusCondition(&status.Conditions, assigned(s, c, &status))
	return status
}

// assigned returns the condition that reports whether nodes have the addresses that they need. Problems are in the
// order in which they must be fixed: a range that is being deleted, or is not accepted, assigns nothing, however many
// blocks are free.
func assigned(s *State, c *Changes, status *v1alpha1.AddressRangeStatus) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionBlocksAssigned, Status: metav1.ConditionFalse,
		ObservedGeneration: s.Range.Generation}
	switch {
	case s.Range.DeletionTimestamp != nil:
		condition.Reason, condition.Message = ReasonDeleted, fmt.Sprintf("the range is being deleted when its blocks "+
			"are returned: %d are left, which end %s after the last claim on their node that takes addresses of the "+
			"range", status.Given, returnDelay(s.Range))
	case s.Addresses == nil:
		condition.Reason, condition.Message = ReasonNotAccepted, "the range is not accepted, so it gives no blocks: "+
			"see the condition Accepted"
	case len(c.Without)+len(c.Short) > 0:
		condition.Reason, condition.Message = ReasonExhausted, exhausted(c, status)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, ReasonAssigned
		condition.Message = "every node that the range selects has as many blocks as it needs"
	}
	condition.Message = conditions.Bound(condition.Message)
	return condition
}

// exhausted lists the nodes that lack addresses, and the remedy.
func exhausted(c *Changes, status *v1alpha1.AddressRangeStatus) string {
	var missing []string
	if len(c.Without) > 0 {
		missing = append(missing, "nodes without a block, on which pods with topologies of this range do not start: "+
			some(c.Without))
	}
	if len(c.Short) > 0 {
		missing = append(missing, "nodes that have few addresses left or none: "+some(c.Short))
	}
	return fmt.Sprintf("all %d blocks are given, %d of them to nodes that are gone; %s; make cidrs larger, or let "+
		"nodeSelector select fewer nodes, or wait until blocks are returned", status.Blocks, status.Returning,
		strings.Join(missing, "; "))
}

func some(names []string) string {
	if len(names) <= manyNodes {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:manyNodes], ", "), len(names)-manyNodes)
}
