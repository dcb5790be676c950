package claimspec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Root is a claim's device for a root step.
type Root struct {
	Step string
	// Parameters are the claim's parameters for the interfaces created from the device.
	Parameters []v1alpha1.ClaimParameters
}

// Spec contains the parts of a claim that refer to one topology.
type Spec struct {
	Topology *v1alpha1.NetworkTopology
	// Claim is namespace/name, for messages.
	Claim string
	// Roots are in the order of the claim's requests and results. The i-th root of a step belongs to the i-th instance.
	Roots []Root
}

// Topologies returns the names of the topologies that attach the given devices, in device order.
func Topologies(devices []Device) []string {
	var names []string
	for i := range devices {
		if name := devices[i].Class.NetworkTopologyRef.Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// SpecOf returns the Spec of a claim for one topology, with the devices that the topology attaches.
func SpecOf(topology *v1alpha1.NetworkTopology, claim string, devices []Device) Spec {
	spec := Spec{Topology: topology, Claim: claim}
	for i := range devices {
		if devices[i].Class.NetworkTopologyRef.Name == topology.Name {
			spec.Roots = append(spec.Roots, Root{Step: devices[i].Class.Step, Parameters: devices[i].Parameters})
		}
	}
	return spec
}

// Check reports all problems in the claim. The path of each problem is a field in the topology.
func (s *Spec) Check() field.ErrorList {
	if problems := s.CheckDevices(); len(problems) > 0 {
		return problems // the devices do not form complete instances
	}
	problems := s.CheckNames()
	for instance := range s.Instances() {
		given, refused := s.Parameters(instance)
		problems = append(problems, refused...)
		if len(refused) == 0 {
			problems = append(problems, s.CheckAddresses(given)...)
		}
	}
	return problems
}

// Instances returns the number of instances of the topology that are created for a pod.
func (s *Spec) Instances() int {
	count := s.devices()
	if len(count) == 0 {
		return 0
	}
	return slices.Max(slices.Collect(maps.Values(count)))
}

// devices returns the number of devices for each root step.
func (s *Spec) devices() map[string]int {
	count := map[string]int{}
	for i := range s.Roots {
		count[s.Roots[i].Step]++
	}
	return count
}

// CheckDevices checks that every root step has the same number of devices, and that every device has a root step.
//
// For example, a bond has the root steps left and right. A claim with two devices for each of them gets two bonds. A
// claim with two devices for left and one for right is rejected.
func (s *Spec) CheckDevices() field.ErrorList {
	var problems field.ErrorList
	count, instances := s.devices(), s.Instances()
	for i := range s.Topology.Spec.Steps {
		step := &s.Topology.Spec.Steps[i]
		if len(step.DependOn) > 0 {
			continue
		}
		switch devices := count[step.Name]; devices {
		case 0:
			problems = append(problems, field.Required(stepPath(i), fmt.Sprintf(
				"claim %s has no device for root step %q: add a request with deviceClassName %s",
				s.Claim, step.Name, v1alpha1.ClassName(s.Topology.Name, step.Name))))
		case instances:
		default:
			problems = append(problems, field.Invalid(stepPath(i), devices, fmt.Sprintf(
				"the number of devices of claim %s is %d for root step %q and %d for another: "+
					"request the same count from every class of topology %s",
				s.Claim, devices, step.Name, instances, s.Topology.Name)))
		}
		delete(count, step.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(count)) {
		problems = append(problems, field.NotFound(stepsPath(), fmt.Sprintf("%s (the topology changed after "+
			"scheduling: "+
			"it no longer has a root step of that name; delete the pod and its claim)", name)))
	}
	return problems
}

// CheckNames rejects multiple instances of a topology that contains a fixed interface name.
func (s *Spec) CheckNames() field.ErrorList {
	if s.Instances() < 2 {
		return nil
	}
	var problems field.ErrorList
	for i := range s.Topology.Spec.Steps {
		name := s.Topology.Spec.Steps[i].WantedInterfaceName()
		if name != "" && !strings.Contains(name, "{{") {
			problems = append(problems, field.Invalid(stepPath(i).Child("ifName"), name,
				"several instances cannot have the same fixed interface name: "+
					"request one device per class, or remove the name"))
		}
	}
	return problems
}

// Parameters returns the claim's parameters for the steps of an instance, by step, if the topology allows them.
//
// For example, the second of three devices for the step left belongs to instance 1, together with the claim's
// parameters for its request.
func (s *Spec) Parameters(instance int) (map[string]v1alpha1.ClaimParameters, field.ErrorList) {
	given := parameterSet{Spec: s, bySteps: map[string]v1alpha1.ClaimParameters{}, set: map[string]bool{}}
	seen := map[string]int{}
	var roots []*Root
	for i := range s.Roots {
		root := &s.Roots[i]
		if seen[root.Step] == instance {
			roots = append(roots, root)
		}
		seen[root.Step]++
	}
	// Use a fixed order, so that if a step is given two values, the same value is rejected regardless of the order of
	// the requests.
	slices.SortStableFunc(roots, func(a, b *Root) int { return strings.Compare(a.Step, b.Step) })
	for _, root := range roots {
		for i := range root.Parameters {
			given.apply(root.Step, &root.Parameters[i])
		}
	}
	return given.bySteps, given.problems
}

// CheckAddresses checks the addresses of an instance. If a step gets its addresses only from claims, CheckAddresses
// rejects a claim that sets none. It also rejects addresses that the step's IPAM plugin would not assign. given are the
// claim's parameters, by step.
func (s *Spec) CheckAddresses(given map[string]v1alpha1.ClaimParameters) field.ErrorList {
	var problems field.ErrorList
	for i := range s.Topology.Spec.Steps {
		step := &s.Topology.Spec.Steps[i]
		if NeedsIPs(step) && len(given[step.Name].IPs) == 0 {
			problems = append(problems, field.Required(stepPath(i).Child("claimParameters"), fmt.Sprintf("claim %s has no "+
				"ips for step %q, which gets addresses from claims only: add an opaque configuration of kind "+
				"ClaimParameters with ips to a claim that the pod names", s.Claim, step.Name)))
		}
	}
	return append(problems, s.checkRanges(given)...)
}

// checkRanges rejects addresses that the step's IPAM plugin would not assign.
func (s *Spec) checkRanges(given map[string]v1alpha1.ClaimParameters) field.ErrorList {
	var problems field.ErrorList
	for i := range s.Topology.Spec.Steps {
		step := &s.Topology.Spec.Steps[i]
		for _, address := range given[step.Name].IPs {
			if reason := refusedAddress(step, address); reason != "" {
				problems = append(problems, field.Invalid(stepPath(i).Child("claimParameters"), address,
					fmt.Sprintf("claim %s has it in ips for step %q: %s", s.Claim, step.Name, reason)))
			}
		}
	}
	return problems
}

// parameterSet collects the claim parameters of one instance.
type parameterSet struct {
	*Spec
	bySteps  map[string]v1alpha1.ClaimParameters
	set      map[string]bool // by step and parameter
	problems field.ErrorList
}

func (p *parameterSet) add(problem *field.Error) { p.problems = append(p.problems, problem) }

// apply applies parameters from a claim. root is the root step of the request that the parameters are for.
func (p *parameterSet) apply(root string, asked *v1alpha1.ClaimParameters) {
	name := cmp.Or(asked.Step, root)
	i := slices.IndexFunc(p.Topology.Spec.Steps, func(s v1alpha1.Step) bool { return s.Name == name })
	if i < 0 || !p.dependsOn(name, root) {
		p.add(field.Invalid(stepsPath(), name, fmt.Sprintf("claim %s has parameters for it next to a request for step "+
			"%q: "+
			"name that step, or one that depends on it", p.Claim, root)))
		return
	}
	path, result := stepPath(i).Child("claimParameters"), p.bySteps[name]
	for _, parameter := range asked.Given() {
		key := name + " " + string(parameter)
		switch {
		case !slices.Contains(p.Topology.Spec.Steps[i].ClaimParameters, parameter):
			p.add(field.Forbidden(path, fmt.Sprintf("claim %s sets %s of step %q, which the topology does not allow: "+
				"%s", p.Claim, parameter, name, p.remedy(root, parameter))))
		case p.set[key]:
			p.add(field.Invalid(path, parameter, fmt.Sprintf("claim %s sets it twice for step %q: keep one",
				p.Claim, name)))
		case parameter == v1alpha1.ClaimMAC:
			result.MAC = asked.MAC
		case parameter == v1alpha1.ClaimIPs:
			result.IPs = asked.IPs
		case parameter == v1alpha1.ClaimInterfaceName:
			if err := v1alpha1.CheckClaimInterfaceName(asked.InterfaceName); err != nil {
				p.add(field.Invalid(path, asked.InterfaceName, fmt.Sprintf("claim %s: %v", p.Claim, err)))
				break
			}
			result.InterfaceName = asked.InterfaceName
		}
		p.set[key] = true
	}
	p.bySteps[name] = result
}

// remedy suggests a fix for a claim that sets a parameter for a step that does not allow it. If the root step or one of
// its dependents allows the parameter, the suggestion is to set it for that step.
func (p *parameterSet) remedy(root string, parameter v1alpha1.ClaimParameter) string {
	for i := range p.Topology.Spec.Steps {
		step := &p.Topology.Spec.Steps[i]
		if slices.Contains(step.ClaimParameters, parameter) && p.dependsOn(step.Name, root) {
			return fmt.Sprintf("set step: %s, which allows it", step.Name)
		}
	}
	return "remove it from the claim, or allow it here"
}

// dependsOn reports whether name is the root step itself or depends on it, directly or indirectly. In a topology, steps
// follow their dependencies.
func (p *parameterSet) dependsOn(name, root string) bool {
	dependents := map[string]bool{root: true}
	for i := range p.Topology.Spec.Steps {
		step := &p.Topology.Spec.Steps[i]
		if slices.ContainsFunc(step.DependOn, func(parent string) bool { return dependents[parent] }) {
			dependents[step.Name] = true
		}
	}
	return dependents[name]
}

func stepsPath() *field.Path { return field.NewPath("spec", "steps") }

func stepPath(i int) *field.Path { return stepsPath().Index(i) }
