package v1alpha1

import (
	"maps"
	"regexp"
	"slices"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxPriority     = 1000
	maxCELLength    = 4096
	maxSuffixLength = 32
	maxEntries      = 16 // for capacity, plugins and additional attributes
)

// Validate returns all errors in a policy except errors in expressions that only a CEL compiler can find
// (policy.CheckSelector). Each error contains the field, the reason and the remedy.
func Validate(policy *DeviceExposurePolicy) field.ErrorList {
	spec, path := &policy.Spec, field.NewPath("spec")
	p := &problems{}
	if spec.NodeSelector != nil {
		p.add(metav1validation.ValidateLabelSelector(spec.NodeSelector,
			metav1validation.LabelSelectorValidationOptions{}, path.Child("nodeSelector"))...)
	}
	if spec.Priority < 0 || spec.Priority > maxPriority {
		p.invalid(path.Child("priority"), spec.Priority, "must be between 0 and 1000")
	}
	p.expression(path.Child("selector", "cel"), spec.Selector.CEL, `device.attributes["dra.networking"].type == "bridge"`,
		"shorten it, or split the policy")
	p.action(spec, path)
	return p.list
}

func (p *problems) action(spec *DeviceExposurePolicySpec, path *field.Path) {
	exposure := path.Child("exposure")
	switch spec.Action {
	case ActionExclude:
		if spec.Exposure != nil {
			p.add(field.Forbidden(exposure, "exposure says how devices are offered, but action is exclude: remove "+
				"exposure, or set action to expose"))
		}
	case ActionExpose, "":
		if spec.Exposure == nil {
			p.add(field.Required(exposure, "a policy that exposes devices needs exposure, with supportedCNIPlugins at least"))
			return
		}
		p.exposure(spec.Exposure, exposure)
	default:
		p.add(field.NotSupported(path.Child("action"), spec.Action, []Action{ActionExpose, ActionExclude}))
	}
}

func (p *problems) exposure(e *Exposure, path *field.Path) {
	if e.DeviceNameSuffix != "" && !isSuffix(e.DeviceNameSuffix) {
		p.invalid(path.Child("deviceNameSuffix"), e.DeviceNameSuffix, `must be empty or "-" followed by lower-case letters, `+
			`digits and "-", at most 32 characters, for example "-macvlan"`)
	}
	if e.ExclusionGroup != "" && len(validation.IsDNS1123Label(e.ExclusionGroup)) > 0 {
		p.invalid(path.Child("exclusionGroup"), e.ExclusionGroup, `must be empty or lower-case letters, digits and "-", at `+
			`most 63 characters, for example "rx-handler"`)
	}
	p.sharing(e, path)
	p.plugins(e, path.Child("supportedCNIPlugins"))
	if p.amounts(e, path) { // otherwise, the amounts cannot be used in calculations
		p.capacities(e, path.Child("capacity"))
		p.linkBandwidth(e, path.Child("linkBandwidth"))
		p.consumption(e, path.Child("supportedCNIPlugins"))
	}
	p.publish(e.Publish, path.Child("publish"))
	p.attributes(e, path)
}

func (p *problems) publish(names []string, path *field.Path) {
	p.tooMany(path, len(names), maxEntries)
	for i, name := range names {
		location := path.Index(i)
		switch {
		case slices.Contains(names[:i], name):
			p.duplicate(location, name, "name each attribute once")
		case slices.Contains(RequestableNames(), name):
		case slices.Contains(DiscoveredNames(), name):
			p.invalid(location, name, "cannot be requested: it is published by default, or changes too often to be "+
				"published; remove it")
		default:
			p.add(field.NotSupported(location, name, RequestableNames()))
		}
	}
}

// sharing checks that the plugins' modes are compatible with the device's mode.
func (p *problems) sharing(e *Exposure, path *field.Path) {
	exclusive, shared := false, false
	for _, plugin := range e.SupportedCNIPlugins {
		exclusive = exclusive || plugin.Exclusive
		shared = shared || !plugin.Exclusive
	}
	multiple := path.Child("allowMultipleAllocations")
	switch {
	case !exclusive:
	case !e.AllowMultipleAllocations && shared:
		p.invalid(multiple, false, "exclusive and shared plugins in one policy need allowMultipleAllocations: true and a "+
			"capacity; set both, or make one policy for each kind with different deviceNameSuffix")
	case e.AllowMultipleAllocations && !shared:
		p.invalid(multiple, true, "every plugin is exclusive: set allowMultipleAllocations to false, or exclusive to "+
			"false for a plugin that shares the device")
	case e.AllowMultipleAllocations && len(e.Capacity) == 0:
		p.add(field.Required(path.Child("capacity"),
			"exclusive and shared plugins in one policy need a capacity, which the exclusive ones take as a whole"))
	}
}

func (p *problems) plugins(e *Exposure, path *field.Path) {
	if len(e.SupportedCNIPlugins) == 0 {
		p.add(field.Required(path, "name at least one CNI plugin that may attach the device"))
	}
	p.tooMany(path, len(e.SupportedCNIPlugins), maxEntries)
	attributes := map[string]string{}
	for i, plugin := range e.SupportedCNIPlugins {
		name := path.Index(i).Child("name")
		attribute := CNIAttribute(plugin.Name)
		other, taken := attributes[attribute]
		switch {
		case taken && other == plugin.Name:
			p.duplicate(name, plugin.Name, "name each plugin once")
		case taken:
			p.invalid(name, plugin.Name, "conflicts with %q: both are published as %s/%s; keep one of them", other,
				CNIDomain, attribute)
		case !pluginName.MatchString(plugin.Name):
			p.invalid(name, plugin.Name, "must be the bare file name of the plugin's binary: letters, digits, '-', '_' and "+
				"'.', without a path")
		case !isID(attribute):
			p.invalid(name, plugin.Name, "is published as the name of an attribute, so it must start with a letter and have "+
				"at most 32 characters: rename the binary")
		}
		attributes[attribute] = plugin.Name
	}
}

func (p *problems) consumption(e *Exposure, path *field.Path) {
	first := map[string]amountOf{}
	for i, plugin := range e.SupportedCNIPlugins {
		consume := path.Index(i).Child("consumePerAllocation")
		for _, counter := range slices.Sorted(maps.Keys(plugin.ConsumePerAllocation)) {
			location, amount := consume.Key(counter), plugin.ConsumePerAllocation[counter]
			capacity, known := e.Capacity[counter]
			switch {
			case !known:
				p.invalid(location, amount.String(), "capacity has no counter %q: add it to capacity or remove it here",
					counter)
			case !plugin.Exclusive:
				p.consumed(amountOf{plugin.Name, amount}, counter, capacity, first, location)
			}
		}
	}
}

type amountOf struct {
	plugin string
	amount Amount
}

// consumed checks how much one shared plugin consumes from one counter. The scheduler charges a single default per
// device, regardless of which plugin will attach the device.
func (p *problems) consumed(
	asked amountOf, counter string, capacity Capacity, first map[string]amountOf, location *field.Path,
) {
	amount, policy := asked.amount, RequestPolicy{Default: &asked.amount}
	if r := capacity.RequestPolicy; r != nil {
		if r.Default != nil && r.Default.Cmp(amount.Quantity) != 0 {
			p.invalid(location, amount.String(), "differs from the default %[1]s of capacity[%[2]s].requestPolicy, "+
				"which the scheduler charges: write %[1]s in both", r.Default, counter)
			return
		}
		policy.ValidRange, policy.ValidValues = r.ValidRange, r.ValidValues
	}
	if other, ok := first[counter]; ok && other.amount.Cmp(amount.Quantity) != 0 {
		p.invalid(location, amount.String(), "plugin %[1]q consumes %[2]s, but the scheduler charges one amount for "+
			"the device regardless of its plugin: write %[2]s for both, or create a policy for each", other.plugin,
			&other.amount)
		return
	}
	first[counter] = asked
	if capacity.RequestPolicy == nil || capacity.RequestPolicy.Default == nil { // otherwise checked as the default
		p.defaultAmount(&policy, capacity.Value, location)
	}
}

func isSuffix(s string) bool {
	return len(s) <= maxSuffixLength && s[0] == '-' && len(validation.IsDNS1123Label(s[1:])) == 0
}

// pluginName matches file names that need no quoting or escaping.
var pluginName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
