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

// leftoverChecks compare the node with the driver's records. Gather has queried the driver before and after, so a
// reported item had no owner the whole time.
func leftoverChecks() []check {
	return []check{
		{group: groupLeft, name: "cdi-specs", fine: "every CDI spec is of a prepared claim", needs: needsDriver,
			inspect: checkCDIFiles},
		{group: groupLeft, name: "namespaces", fine: "every pinned network namespace is of a pod sandbox",
			needs: needsDriver, inspect: checkPins},
		{group: groupLeft, name: "claims", fine: "every prepared claim is of a pod on this node", needs: needsDriver,
			inspect: checkClaims},
		{group: groupLeft, name: "links", fine: "no link is on its way back to the host", needs: needsDriver,
			inspect: checkTransitLinks},
		{group: groupLeft, name: "attaching", fine: "no pod waits for an attachment that has failed",
			needs: needsDriver, inspect: checkAttaching},
	}
}

// isOfAny reports whether a CDI spec belongs to one of the claims.
func isOfAny(file string, claims []nodestate.Claim) bool {
	_, uid := nodeapi.ParseSpecName(file)
	return slices.ContainsFunc(claims, func(c nodestate.Claim) bool { return c.Claim.UID == uid })
}

// pinned reports whether a pin belongs to a sandbox, or replaces its pin during a rollback.
func pinned(path string, sandboxes []nodestate.Sandbox) bool {
	return slices.ContainsFunc(sandboxes, func(s nodestate.Sandbox) bool { return host.IsPinOf(path, s.Pin) })
}

// checkCDIFiles finds specs without a claim. A gate is dangerous, since it lets containers start; the others only
// mislead. So after a lost journal gates are reported, and the others are not.
func checkCDIFiles(input *Input) []Finding {
	var found []Finding
	for _, file := range input.CDIFiles {
		kind, _ := nodeapi.ParseSpecName(file)
		isMetadata := kind == nodeapi.MetadataSpec
		if isOfAny(file, input.Driver.Claims) || kind != nodeapi.GateSpec && len(input.SetAside) > 0 {
			// after a lost journal the driver does not know all claims, and keeps what their containers are told
			continue
		}
		finding := Finding{
			Level: Warn, What: "a CDI spec is left of a claim that is not prepared", Where: file,
			Why: "a container of that claim could start without its interfaces", Do: "netdra release --orphans --all",
		}
		if isMetadata {
			finding.Why = "it tells containers of devices that the claim has no more"
		}
		if kind == nodeapi.ExternalSpec {
			finding.Why = "it tells the networks of pods of devices that the claim has no more"
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
				Level: Warn, What: "a network namespace is kept for a sandbox that is not there", Where: pin,
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
				Level: Warn, What: fmt.Sprintf("claim %s is prepared, and no pod of this node uses it",
					claim.Claim), Where: "claim UID " + claim.Claim.UID,
				Why: "its devices stay taken; kubelet releases a claim some seconds after its last pod has gone",
				Do: "look again in a minute; if it stays, restart kubelet, which then releases it, and look at " +
					"kubelet's log",
			})
		}
	}
	return found
}

// checkTransitLinks finds links with the temporary name that they have on their way from a pod to the host. A moving
// link is not a fault, so there is no finding during attaches and rollbacks.
func checkTransitLinks(input *Input) []Finding {
	if len(input.Driver.Leftovers) > 0 {
		return nil // it is one of these, of which is told elsewhere
	}
	for i := range input.Driver.Sandboxes {
		switch input.Driver.Sandboxes[i].State {
		case nodestate.SandboxReady, nodestate.SandboxEnded:
		default:
			return nil // it may be that one's
		}
	}
	var found []Finding
	for _, link := range input.Links {
		if host.IsTransitName(link.Name) {
			found = append(found, Finding{
				Level: Warn, What: fmt.Sprintf("link %s returned to the host from a pod and did not get its name back",
					link.Name), Where: "interface " + link.Name,
				Why: "its device is not offered", Do: "netdra release shows what keeps it; netdra release --all " +
					"tries again",
			})
		}
	}
	return found
}

func checkAttaching(input *Input) []Finding {
	var found []Finding
	for i := range input.Driver.State.Refused {
		refused := &input.Driver.State.Refused[i]
		message, _, _ := strings.Cut(refused.Message, `; "kubectl netdra doctor`) // which has led here
		found = append(found, Finding{
			Level: Warn, What: fmt.Sprintf("pod %s waits: claim %s could not be prepared",
				strings.Join(refused.Pods, ", "), refused.Claim), Where: "claim UID " + refused.Claim.UID,
			Why: strings.ReplaceAll(message, "\n", " "), Do: "fix what the reason says: kubelet asks again",
		})
	}
	for i := range input.Driver.Sandboxes {
		sandbox := &input.Driver.Sandboxes[i]
		if sandbox.DetachFailure != "" {
			found = append(found, Finding{
				Level: Warn, What: fmt.Sprintf("interfaces of pod %s could not be detached yet", sandbox.Pod),
				Where: "sandbox " + sandbox.ID, Why: strings.ReplaceAll(sandbox.Failures(), "\n", " "),
				Do: "fix what the reason says; the driver tries again, and gives a step up after ten attempts or " +
					"five minutes: the pod waits no longer then, and netdra release lists it",
			})
			continue
		}
		if sandbox.Failure != "" && sandbox.State != nodestate.SandboxReady {
			todo := "kubectl describe pod says when it is tried again, netdra trace what was tried"
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
