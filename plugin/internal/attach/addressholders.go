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

// withAddressHolders adds to the failure of a step who has the addresses that the claim asks of it, of IP or of the
// interface: plugins only say that an address is taken. Known are the pods of this node that the same step of the same
// topology has given one.
//
// It is called after a failure only, and reads memory: a pod that starts as it should costs nothing.
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

// holderText is read by users of a namespace in the events of their pods. They may not know who is in another one.
func holderText(pod executor.Pod, claim *cnichain.Claim, reader, address string) string {
	if claim.Namespace != reader {
		return fmt.Sprintf("a pod of another namespace has address %s; \"netdra claims\" on the node names it", address)
	}
	return fmt.Sprintf("pod %s (claim %s) has address %s", pod.String(), claim.String(), address)
}

// askedAddresses are those that claims ask of a step, in the usual form.
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
					if prefix, err := netip.ParsePrefix(text); err == nil { // it was checked before
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

// givenAddresses are those that the plugin of a step has returned, in the usual form.
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
