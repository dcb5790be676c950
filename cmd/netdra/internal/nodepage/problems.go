package nodepage

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// problemsOf returns all problems, urgent ones first, sorted by place.
func problemsOf(node *Node) []Problem {
	problems := slices.Concat(leftovers(node), failures(node), taintProblems(node), published(node))
	for _, found := range node.Found {
		known := slices.ContainsFunc(problems, func(p Problem) bool { return strings.Contains(found.What, p.What) })
		if !known {
			problems = append(problems, found)
		}
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		switch {
		case a.Urgent == b.Urgent:
			return strings.Compare(a.Where, b.Where)
		case a.Urgent:
			return -1
		}
		return 1
	})
	return problems
}

// leftovers returns the steps that could not be rolled back.
func leftovers(node *Node) []Problem {
	var problems []Problem
	for i := range node.Leftovers {
		leftover := &node.Leftovers[i]
		problem := Problem{
			Where: "step " + leftover.Step().Step.Name + " of pod " + leftover.Attachment.Pod.String(),
			What: fmt.Sprintf("cleanup failed after %d attempts since %s: %s", leftover.Attempts,
				leftover.Since.UTC().Format("2006-01-02 15:04:05 UTC"), leftover.Reason),
			ToDo: "fix the reported cause; the driver retries every five minutes, or immediately with: netdra " +
				"release " + leftover.Key + "; if the cleanup can never succeed, abandon it with --forget",
		}
		if device := leftover.Quarantines(); device != nil {
			problem.Urgent, problem.Where = true, "device "+device.Name
			problem.What = "is quarantined: " + problem.What
		}
		problems = append(problems, problem)
	}
	return problems
}

// failures returns failed attachments and detachments, and lost interfaces.
func failures(node *Node) []Problem {
	var problems []Problem
	for i := range node.Sandboxes {
		box := &node.Sandboxes[i]
		if box.DetachFailure != "" {
			problems = append(problems, Problem{
				Urgent: true, Where: "pod " + box.Pod.String(), What: "could not be detached yet: " + box.Failures(),
				ToDo: tracing(node, box),
			})
		} else if box.Failure != "" {
			what := box.State + " failed: " + box.WithHint()
			if box.State == nodestate.SandboxEnded {
				what = "the last attempt to attach failed, and its sandbox has ended: " + box.WithHint()
			}
			problems = append(problems, Problem{
				Urgent: true, Where: "pod " + box.Pod.String(), What: what,
				ToDo: tracing(node, box),
			})
		}
		for _, link := range node.Sandboxes[i].Interfaces {
			if link.Missing != "" {
				problems = append(problems, Problem{
					Urgent: true, Where: "pod " + node.Sandboxes[i].Pod.String(),
					What: fmt.Sprintf("has lost its interface %s of device %s: the device or one of its lower devices "+
						"was removed, or an application has moved the interface", link.Missing, link.Device),
					ToDo: remedyForLost(node, link.Pool, link.Device),
				})
			}
		}
	}
	return problems
}

// remedyForLost returns the fix for an interface that is missing from its pod. If the device itself no longer exists, a
// new pod would not get it either.
func remedyForLost(node *Node, pool, device string) string {
	for i := range node.Result.Entries {
		if entry := &node.Result.Entries[i]; entry.Pool == pool && entry.Name == device && isGone(entry) {
			return "the device is gone: restore it first, then delete the pod; its replacement gets the interface"
		}
	}
	return "delete the pod; its replacement gets the interface"
}

// tracing returns the commands that show the CNI calls for a sandbox's claims; "" if the claims no longer exist.
func tracing(node *Node, box *nodestate.Sandbox) string {
	var commands []string
	for i := range node.Claims {
		if claim := &node.Claims[i].Claim; slices.Contains(box.Claims, claim.UID) {
			commands = append(commands, "netdra trace "+claim.String()+" --calls")
		}
	}
	if len(commands) == 0 {
		return ""
	}
	return "see the chain below; for the input and output of the plugins, run: " + strings.Join(commands, "; ")
}

// taintProblems returns the tainted devices. If several entries for a device have the same taint, it is reported once.
func taintProblems(node *Node) []Problem {
	var problems []Problem
	for i := range node.Result.Entries {
		entry := &node.Result.Entries[i]
		for _, taint := range entry.Spec.Taints {
			problem := Problem{Where: "device " + string(entry.Device.Name), What: "cannot be allocated: " +
				describeTaint(taint.Value), ToDo: remedyForTaint(taint.Value)}
			if taint.Value != "quarantined" && !slices.Contains(problems, problem) { // leftovers report those
				problems = append(problems, problem)
			}
		}
	}
	return problems
}

const taintGone = "gone"

// isGone reports whether an entry's device no longer exists.
func isGone(entry *draslices.Entry) bool {
	return slices.ContainsFunc(entry.Spec.Taints,
		func(taint resourceapi.DeviceTaint) bool { return taint.Value == taintGone })
}

// remedyForTaint returns the fix for a taint.
func remedyForTaint(value string) string {
	switch value {
	case taintGone:
		return "restore the device, then delete the pods that have lost it; their successors get it"
	case "withdrawn":
		return "none if this is intended: the device is removed when the last pod that uses it ends"
	case "no-carrier":
		return "check the cable and the switch; the device becomes available after 30 s with a carrier"
	}
	return ""
}

// published returns problems in discovery, policies and publication.
func published(node *Node) []Problem {
	problems := orphans(node)
	for _, p := range slices.Concat(node.Decision.Problems, node.Result.Problems) {
		problems = append(problems, Problem{Where: whereOf(p), What: p.Message})
	}
	for _, p := range node.Facts.Problems {
		where := "the machine"
		if p.Device != "" {
			where = "device " + p.Device
		}
		problems = append(problems, Problem{Where: where, What: p.Message})
	}
	return problems
}

// orphans reports virtual functions without a name.
func orphans(node *Node) []Problem {
	if len(node.Facts.Orphans) == 0 {
		return nil
	}
	addresses := make([]string, 0, len(node.Facts.Orphans))
	for i := range node.Facts.Orphans {
		addresses = append(addresses, string(node.Facts.Orphans[i].PCIAddress))
	}
	return []Problem{{Where: "virtual functions " + ranges(addresses),
		What: "have no names and are not offered: the interface of their physical function is not on the node, or " +
			"does not list them"}}
}

// whereOf returns the most specific object that a problem refers to.
func whereOf(p policy.Problem) string {
	switch {
	case p.Policy != "" && p.Device != "":
		return "policy " + p.Policy + ", device " + p.Device
	case p.Policy != "":
		return "policy " + p.Policy
	case p.Device != "":
		return "device " + p.Device
	}
	return "the node"
}

// problemPolicies returns the policies with problems.
func problemPolicies(node *Node) []string {
	var names []string
	for _, p := range slices.Concat(node.Decision.Problems, node.Result.Problems) {
		names = append(names, p.Policy)
	}
	return names
}
