package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

func isOfAny(file string, claims []nodestate.Claim) bool {
	_, uid := nodeapi.ParseSpecName(file)
	return slices.ContainsFunc(claims, func(c nodestate.Claim) bool { return c.Claim.UID == uid })
}

// pinned reports whether a pin belongs to a sandbox, or temporarily replaces a sandbox's pin during a rollback.
func pinned(path string, sandboxes []nodestate.Sandbox) bool {
	return slices.ContainsFunc(sandboxes, func(s nodestate.Sandbox) bool { return host.IsPinOf(path, s.Pin) })
}

// checkCDIFiles finds specs without a claim. A leftover gate spec is dangerous because it allows containers to start,
// whereas other specs are only misleading. If its journal was lost, the driver no longer has a record of every claim
// and keeps the other specs for running containers, so only gates are reported.
func checkCDIFiles(input *Input) []Finding {
	var found []Finding
	for _, file := range input.CDIFiles {
		kind, _ := nodeapi.ParseSpecName(file)
		isMetadata := kind == nodeapi.MetadataSpec
		if isOfAny(file, input.Driver.Claims) || kind != nodeapi.GateSpec && len(input.SetAside) > 0 {
			continue
		}
		finding := Finding{
			Level: Warn, What: "a CDI spec exists for a claim that is not prepared", Where: file,
			Why: "a container of that claim could start without its interfaces", Do: "netdra release --orphans --all",
		}
		if isMetadata {
			finding.Why = "it contains devices that the claim no longer has"
		}
		if kind == nodeapi.ExternalSpec {
			finding.Why = "it passes devices that the claim no longer has to pod networks"
		}
		found = append(found, finding)
	}
	return found
}

func checkPins(input *Input) []Finding {
	var found []Finding
	for _, pin := range input.Pins {
		isLeftovers := func(l executor.Leftover) bool { return host.IsPinOf(pin, l.Attachment.Pin) }
		if !pinned(pin, input.Driver.Sandboxes) && !slices.ContainsFunc(input.Driver.Leftovers, isLeftovers) {
			found = append(found, Finding{
				Level: Warn, What: "a network namespace is pinned for a sandbox that does not exist", Where: pin,
				Why: "devices in it do not return to the host", Do: "netdra release --orphans --all",
			})
		}
	}
	return found
}

func checkClaims(input *Input) []Finding {
	var found []Finding
	for i := range input.Driver.Claims {
		if claim := &input.Driver.Claims[i]; claim.Unused {
			found = append(found, Finding{
				Level: Warn, What: fmt.Sprintf("claim %s is prepared, but no pod of this node uses it",
					claim.Claim), Where: "claim UID " + claim.Claim.UID,
				Why: "its devices stay allocated; the kubelet releases a claim a few seconds after its last pod ends",
				Do: "check again in a minute; if it persists, check the kubelet's log and restart the kubelet, which " +
					"then releases the claim",
			})
		}
	}
	return found
}

// checkTransitLinks finds links with the temporary name used while a link moves from a pod to the host. Such names are
// normal while a pod is being attached or rolled back, so nothing is reported in that case.
func checkTransitLinks(input *Input) []Finding {
	if len(input.Driver.Leftovers) > 0 {
		return nil // checkQuarantine reports these
	}
	for i := range input.Driver.Sandboxes {
		switch input.Driver.Sandboxes[i].State {
		case nodestate.SandboxReady, nodestate.SandboxEnded:
		default:
			return nil // the link may belong to this sandbox
		}
	}
	var found []Finding
	for _, link := range input.Links {
		if host.IsTransitName(link.Name) {
			found = append(found, Finding{
				Level: Warn, What: fmt.Sprintf("link %s returned from a pod to the host but was not renamed",
					link.Name), Where: "interface " + link.Name,
				Why: "its device is not offered", Do: "run netdra release to see the cause, then " +
					"netdra release --all to retry",
			})
		}
	}
	return found
}

func checkAttaching(input *Input) []Finding {
	var found []Finding
	for i := range input.Driver.State.Refused {
		refused := &input.Driver.State.Refused[i]
		message, _, _ := strings.Cut(refused.Message, `; "kubectl netdra doctor`) // the user is already running doctor
		found = append(found, Finding{
			Level: Warn, What: fmt.Sprintf("pod %s waits: claim %s could not be prepared",
				strings.Join(refused.Pods, ", "), refused.Claim), Where: "claim UID " + refused.Claim.UID,
			Why: strings.ReplaceAll(message, "\n", " "), Do: "fix the reported cause; the kubelet retries",
		})
	}
	for i := range input.Driver.Sandboxes {
		sandbox := &input.Driver.Sandboxes[i]
		if sandbox.DetachFailure != "" {
			found = append(found, Finding{
				Level: Warn, What: fmt.Sprintf("interfaces of pod %s could not be detached yet", sandbox.Pod),
				Where: "sandbox " + sandbox.ID, Why: strings.ReplaceAll(sandbox.Failures(), "\n", " "),
				Do: "fix the reported cause; the driver retries, and abandons a step after ten attempts or five " +
					"minutes: then the pod can terminate, and netdra release lists the step",
			})
			continue
		}
		if sandbox.Failure != "" && sandbox.State != nodestate.SandboxReady {
			todo := "for the next retry, run kubectl describe pod; for the calls so far, netdra trace"
			if sandbox.FailureHint != "" {
				todo = sandbox.FailureHint + "; " + todo
			}
			found = append(found, Finding{
				Level: Warn, What: fmt.Sprintf("pod %s waits: its interfaces could not be attached",
					sandbox.Pod), Where: "sandbox " + sandbox.ID,
				Why: strings.ReplaceAll(sandbox.Failure, "\n", " "), Do: todo,
			})
		}
	}
	return found
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
