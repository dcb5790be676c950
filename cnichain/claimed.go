package cnichain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// wishes are what a claim wants of the interfaces of one instance.
type wishes struct {
	*compiler
	steps   []PlanStep
	granted map[string]bool // by step and parameter
}

// grant gives a step what the claim says of its interface, as far as the topology allows it. It was said beside the request for a
// root step.
func (w *wishes) grant(root string, wanted *v1alpha1.ClaimParameters) {
	name := cmp.Or(wanted.Step, root)
	i := slices.IndexFunc(w.steps, func(s PlanStep) bool { return s.Name == name })
	if i < 0 || !w.standsOn(name, root) {
		w.add(field.Invalid(w.path, name, fmt.Sprintf("claim %s has parameters for it beside a request for step %q: name that step, or one that depends on it", w.binding.Claim, root)))
		return
	}
	path, step := w.path.Index(i).Child("claimParameters"), &w.steps[i]
	for _, parameter := range wanted.Given() {
		key := name + " " + string(parameter)
		switch {
		case !slices.Contains(w.topology.Spec.Steps[i].ClaimParameters, parameter):
			w.add(field.Forbidden(path, fmt.Sprintf("claim %s sets %s of step %q, which the topology does not allow: remove it from the claim, or have it allowed here", w.binding.Claim, parameter, name)))
		case w.granted[key]:
			w.add(field.Invalid(path, parameter, fmt.Sprintf("claim %s sets it twice for step %q: keep one", w.binding.Claim, name)))
		case parameter == v1alpha1.ClaimMAC:
			step.MAC = wanted.MAC
		case parameter == v1alpha1.ClaimIPs:
			step.IPs = wanted.IPs
		case parameter == v1alpha1.ClaimInterfaceName:
			w.name(path, step, wanted.InterfaceName)
		}
		w.granted[key] = true
	}
}

func (w *wishes) name(path *field.Path, step *PlanStep, name string) {
	err := checkIfName(name)
	if err == nil {
		err = checkClaimedName(name)
	}
	if err != nil {
		w.add(field.Invalid(path, name, fmt.Sprintf("claim %s: %v", w.binding.Claim, err)))
		return
	}
	step.IfName = name
}

// checkClaimedName is stricter than the kernel: plugins get the name in CNI_IFNAME and in their configuration, as
// root, and some are scripts. all and default are every interface's settings in sysctls.
func checkClaimedName(name string) error {
	ordinary := func(r rune, first bool) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			!first && (r == '.' || r == '_' || r == '-')
	}
	for i, r := range name {
		if !ordinary(r, i == 0) {
			return fmt.Errorf("%q is not a valid interface name for a claim: use letters, digits, '.', '_' and '-', "+
				"and begin with a letter or digit", name)
		}
	}
	if name == "all" || name == "default" {
		return fmt.Errorf("%q is not a valid interface name: it stands for all interfaces in sysctls", name)
	}
	return nil
}

// standsOn says whether a step is a root step or depends on it, also by others. Steps stand after those that they depend on.
func (c *compiler) standsOn(name, root string) bool {
	stand := map[string]bool{root: true}
	for i := range c.topology.Spec.Steps {
		step := &c.topology.Spec.Steps[i]
		if slices.ContainsFunc(step.DependOn, func(parent string) bool { return stand[parent] }) {
			stand[step.Name] = true
		}
	}
	return stand[name]
}

// obeyed says whether a plugin has done what the claim wants: some ignore it, and a pod with another address than it was promised
// must not run.
func obeyed(step *PlanStep, mac string, result *types100.Result) error {
	if step.MAC != "" && mac != step.MAC {
		return fmt.Errorf("%s gave the interface the MAC address %s although the claim wants %s: it does not know the capability mac; remove it from claimParameters of the step", step.Type, mac, step.MAC)
	}
	for _, wanted := range step.IPs {
		prefix, err := netip.ParsePrefix(wanted)
		if err != nil {
			return err
		}
		given := slices.ContainsFunc(result.IPs, func(ip *types100.IPConfig) bool { return ip.Address.IP.Equal(prefix.Addr().AsSlice()) })
		if !given {
			return fmt.Errorf("%s did not give the interface the address %s that the claim wants: its IPAM plugin does not know the capability ips; remove it from claimParameters of the step", step.Type, wanted)
		}
	}
	return nil
}
