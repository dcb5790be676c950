package attach

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// withAddressHolders adds the owners of the requested IP or MAC addresses to the failure of a step: plugins only report
// that an address is in use. It considers the pods on this node that got an address from the same step of the same
// topology.
//
// It only runs after a failure and only reads memory, so it does not delay pods that start normally.
func (s *Sandboxes) withAddressHolders(failure error, records []claims.Record) error {
	var step *executor.StepError
	if !errors.As(failure, &step) {
		return failure
	}
	asked := askedAddresses(records, step)
	if len(asked) == 0 {
		return failure
	}
	var holders []string
	for _, box := range s.list() {
		state := box.state(s.node)
		for _, uid := range state.Claims {
			steps := box.steps(uid)
			for i := range steps {
				if steps[i].Claim.UID != uid || steps[i].Topology != step.Topology || steps[i].Step.Name != step.Step {
					continue
				}
				for _, address := range givenAddresses(&steps[i]) {
					if slices.Contains(asked, address) {
						holders = append(holders, holderText(box.pod, &steps[i].Claim, step.Claim.Namespace, address))
					}
				}
			}
		}
	}
	if len(holders) == 0 {
		return failure
	}
	slices.Sort(holders)
	return fmt.Errorf("%w; %s", failure, strings.Join(slices.Compact(holders), ", "))
}

// holderText returns the text for users of a namespace, who see it in the events of their pods. They must not see the
// names of pods in other namespaces.
func holderText(pod executor.Pod, claim *cnichain.Claim, reader, address string) string {
	if claim.Namespace != reader {
		return fmt.Sprintf("a pod of another namespace has address %s; \"netdra claims\" on the node names it", address)
	}
	return fmt.Sprintf("pod %s (claim %s) has address %s", pod.String(), claim.String(), address)
}

// askedAddresses returns the addresses that claims request from a step, in canonical form.
func askedAddresses(records []claims.Record, step *executor.StepError) []string {
	var asked []string
	for i := range records {
		for _, plan := range records[i].Plans {
			if records[i].Claim.UID != step.Claim.UID || plan.Topology != step.Topology {
				continue
			}
			for j := range plan.Steps {
				if plan.Steps[j].Name != step.Step {
					continue
				}
				for _, text := range plan.Steps[j].IPs {
					if prefix, err := netip.ParsePrefix(text); err == nil { // validated earlier
						asked = append(asked, prefix.Addr().Unmap().String())
					}
				}
				if mac := plan.Steps[j].MAC; mac != "" {
					asked = append(asked, mac)
				}
			}
		}
	}
	return asked
}

// givenAddresses returns the addresses in the result of a step, in canonical form.
func givenAddresses(step *executor.StepRecord) []string {
	if step.Merged == nil {
		return nil
	}
	var given []string
	for _, ip := range step.Merged.IPs {
		if address, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			given = append(given, address.Unmap().String())
		}
	}
	for _, link := range step.Merged.Interfaces {
		if mac, err := net.ParseMAC(link.Mac); err == nil && link.Sandbox != "" {
			given = append(given, mac.String())
		}
	}
	return given
}
