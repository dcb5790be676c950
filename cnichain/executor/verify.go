package executor

import (
	"fmt"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/dra-networking/dra-network-driver/cnichain"
)

// verify does not trust the plugin: it checks that the interface is in the pod, unless the step does not attach one.
// links lists the pod's links.
func (e *Executor) verify(
	attachment *Attachment, record *StepRecord, result *types100.Result, links []cnichain.Link,
) error {
	record.Merged = mergeResults(append(parentResults(attachment, record), result)...)
	if record.Step.WithoutInterface() {
		mac, err := e.keptAddress(&record.Step)
		if err != nil {
			return err
		}
		return verifyClaimParams(&record.Step, mac, result)
	}
	link := findLink(links, record.IfName)
	if link == nil {
		return fmt.Errorf("%s reported success but the pod has no interface %q", record.Step.Type, record.IfName)
	}
	if record.Step.Makes {
		record.Link = link
	}
	adoptAddresses(attachment, links)
	return verifyClaimParams(&record.Step, link.MAC, result)
}

// adoptAddresses updates the MAC addresses of the pod's interfaces in all results that are passed to later steps and
// users. This is necessary because a step may have modified the interface of an earlier step, and other steps may
// depend on that earlier step's result.
func adoptAddresses(attachment *Attachment, links []cnichain.Link) {
	for i := range attachment.Steps {
		merged := attachment.Steps[i].Merged
		if merged == nil {
			continue
		}
		for _, made := range merged.Interfaces {
			if link := findLink(links, made.Name); made.Sandbox == attachment.Pin && link != nil && link.MAC != "" {
				made.Mac = link.MAC
			}
		}
	}
}

// keptAddress returns the MAC address that the physical function stores for a virtual function without an interface, if
// a claim requests a MAC address. The application drives the virtual function directly, so there is no interface to
// inspect.
func (e *Executor) keptAddress(step *cnichain.PlanStep) (string, error) {
	if step.MAC == "" {
		return "", nil
	}
	device := *step.Device
	device.IfName = ""
	now, err := e.Host.Snapshot(device)
	if err != nil {
		return "", err
	}
	if now.VF == nil {
		return "", fmt.Errorf("device %s has no physical function that could confirm the MAC address %s, which the "+
			"claim requests: remove mac from claimParameters of the step", device.Name, step.MAC)
	}
	return now.VF.MAC, nil
}

// verifyClaimParams verifies that a plugin has applied the parameters in the claim, because some plugins ignore them,
// and a pod must not run with any other address than it requested. mac is the current address of the interface or, for
// a step that binds a driver, the address that the physical function stores.
func verifyClaimParams(step *cnichain.PlanStep, mac string, result *types100.Result) error {
	if step.MAC != "" && mac != step.MAC {
		return fmt.Errorf("%s set the MAC address %s, but the claim requests %s: it does not support the capability "+
			"mac; remove it from claimParameters of the step", step.Type, mac, step.MAC)
	}
	for _, wanted := range step.IPs {
		prefix, err := netip.ParsePrefix(wanted)
		if err != nil {
			return err
		}
		given := slices.ContainsFunc(result.IPs,
			func(ip *types100.IPConfig) bool { return ip.Address.IP.Equal(prefix.Addr().AsSlice()) })
		if !given {
			return fmt.Errorf("%s did not assign the address %s, which the claim requests: its IPAM plugin does "+
				"not support the capability ips; remove it from claimParameters of the step", step.Type, wanted)
		}
	}
	return nil
}
