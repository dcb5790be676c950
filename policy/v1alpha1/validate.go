package v1alpha1

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxPriority     = 1000
	maxCELLength    = 4096
	maxSuffixLength = 32
	maxEntries      = 16 // of capacity, plugins and additional attributes
)

// Validate returns everything that is wrong with a policy, but for its CEL expression, which needs a compiler
// (policy.CheckSelector). Each error has the field, the reason and what to do.
func Validate(policy *DeviceExposurePolicy) field.ErrorList {
	spec, path := &policy.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if spec.NodeSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(spec.NodeSelector,
			metav1validation.LabelSelectorValidationOptions{}, path.Child("nodeSelector"))...)
	}
	if spec.Priority < 0 || spec.Priority > maxPriority {
		errs = append(errs, field.Invalid(path.Child("priority"), spec.Priority, "must be between 0 and 1000"))
	}
	switch cel := path.Child("selector", "cel"); {
	case strings.TrimSpace(spec.Selector.CEL) == "":
		errs = append(errs,
			field.Required(cel,
				`an expression over one device, for example device.attributes["dra.networking"].type == "bridge"`))
	case len(spec.Selector.CEL) > maxCELLength:
		errs = append(errs, explained(field.TooLong(cel, "", maxCELLength), fmt.Sprintf(
			"has %d bytes, the limit is %d: shorten it, or split the policy", len(spec.Selector.CEL),
			maxCELLength)))
	}
	return append(errs, validateAction(spec, path)...)
}

// validateAction checks that the action and the exposure go together, and the exposure.
func validateAction(spec *DeviceExposurePolicySpec, path *field.Path) field.ErrorList {
	exposure := path.Child("exposure")
	switch spec.Action {
	case ActionExclude:
		if spec.Exposure != nil {
			return field.ErrorList{field.Forbidden(exposure,
				"exposure says how devices are offered, but action is exclude: remove exposure, or set action to "+
					"expose")}
		}
		return nil
	case ActionExpose, "":
		if spec.Exposure == nil {
			return field.ErrorList{field.Required(exposure,
				"a policy that exposes devices needs exposure, with supportedCNIPlugins at least")}
		}
		return validateExposure(spec.Exposure, exposure)
	}
	return field.ErrorList{field.NotSupported(path.Child("action"), spec.Action, []Action{ActionExpose, ActionExclude})}
}

// validateExposure checks how devices are offered.
func validateExposure(e *Exposure, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if e.DeviceNameSuffix != "" && !isSuffix(e.DeviceNameSuffix) {
		errs = append(errs, field.Invalid(path.Child("deviceNameSuffix"), e.DeviceNameSuffix,
			`must be empty or "-" followed by lower-case letters, digits and "-", at most 32 characters, for `+
				`example "-macvlan"`))
	}
	if e.ExclusionGroup != "" && len(validation.IsDNS1123Label(e.ExclusionGroup)) > 0 {
		errs = append(errs, field.Invalid(path.Child("exclusionGroup"), e.ExclusionGroup,
			`must be empty or lower-case letters, digits and "-", at most 63 characters, for example "rx-handler"`))
	}
	errs = append(errs, validateSharing(e, path)...)
	errs = append(errs, validatePlugins(e, path.Child("supportedCNIPlugins"))...)
	if outOfRange := validateAmounts(e, path); len(outOfRange) > 0 {
		errs = append(errs, outOfRange...) // and no arithmetic with such amounts
	} else {
		errs = append(errs, validateCapacities(e, path.Child("capacity"))...)
		errs = append(errs, validateConsumption(e, path.Child("supportedCNIPlugins"))...)
	}
	errs = append(errs, validatePublish(e.Publish, path.Child("publish"))...)
	return append(errs, validateAttributes(e, path)...)
}

// validatePublish checks the names of the discovered attributes that the policy asks for.
func validatePublish(names []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(names) > maxEntries {
		errs = append(errs, field.TooMany(path, len(names), maxEntries))
	}
	for i, name := range names {
		location := path.Index(i)
		switch {
		case slices.Contains(names[:i], name):
			errs = append(errs, explained(field.Duplicate(location, name), "name each attribute once"))
		case slices.Contains(RequestableNames(), name):
		case slices.Contains(DiscoveredNames(), name):
			errs = append(errs, field.Invalid(location, name, "cannot be requested: it is published by default, "+
				"or changes too often to be published; remove it"))
		default:
			errs = append(errs, field.NotSupported(location, name, RequestableNames()))
		}
	}
	return errs
}

// validateSharing checks that the plugins' modes and the device's mode go together.
func validateSharing(e *Exposure, path *field.Path) field.ErrorList {
	if !e.AllowMultipleAllocations {
		if exclusive, shared := e.modes(); exclusive && shared {
			return field.ErrorList{field.Invalid(path.Child("allowMultipleAllocations"), false,
				"exclusive and shared plugins in one policy need allowMultipleAllocations: true and a capacity; "+
					"set both, or make one policy for each kind with different deviceNameSuffix")}
		}
		return nil
	}
	exclusive, shared := e.modes()
	switch {
	case exclusive && !shared:
		return field.ErrorList{field.Invalid(path.Child("allowMultipleAllocations"), true,
			"every plugin is exclusive: set allowMultipleAllocations to false, or exclusive to false for a plugin "+
				"that shares the device")}
	case exclusive && len(e.Capacity) == 0:
		return field.ErrorList{field.Required(path.Child("capacity"),
			"exclusive and shared plugins in one policy need a capacity, which the exclusive ones take as a whole")}
	}
	return nil
}

// modes reports whether the exposure has exclusive and shared plugins.
func (e *Exposure) modes() (exclusive, shared bool) {
	for _, p := range e.SupportedCNIPlugins {
		exclusive = exclusive || p.Exclusive
		shared = shared || !p.Exclusive
	}
	return exclusive, shared
}

// validatePlugins checks the names of the plugins.
func validatePlugins(e *Exposure, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(e.SupportedCNIPlugins) == 0 {
		errs = append(errs, field.Required(path, "name at least one CNI plugin that may attach the device"))
	}
	if len(e.SupportedCNIPlugins) > maxEntries {
		errs = append(errs, field.TooMany(path, len(e.SupportedCNIPlugins), maxEntries))
	}
	attributes := map[string]string{}
	for i, p := range e.SupportedCNIPlugins {
		name := path.Index(i).Child("name")
		attribute := CNIAttribute(p.Name)
		other, taken := attributes[attribute]
		switch {
		case taken && other == p.Name:
			errs = append(errs, explained(field.Duplicate(name, p.Name), "name each plugin once"))
		case taken:
			errs = append(errs, field.Invalid(name, p.Name, fmt.Sprintf(
				"conflicts with %q: both are published as %s/%s; keep one of them", other, CNIDomain, attribute)))
		case !isPluginName(p.Name):
			errs = append(errs, field.Invalid(name, p.Name,
				"must be the bare file name of the plugin's binary: letters, digits, '-', '_' and '.', without a path"))
		case !isID(attribute):
			errs = append(errs, field.Invalid(name, p.Name,
				"is published as the name of an attribute, so it must start with a letter and have at most 32 "+
					"characters: rename the binary"))
		}
		attributes[attribute] = p.Name
	}
	return errs
}

// validateConsumption checks what the plugins consume against the capacity.
func validateConsumption(e *Exposure, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	first := map[string]amountOf{}
	for i, p := range e.SupportedCNIPlugins {
		consume := path.Index(i).Child("consumePerAllocation")
		for _, counter := range slices.Sorted(maps.Keys(p.ConsumePerAllocation)) {
			location, amount := consume.Key(counter), p.ConsumePerAllocation[counter]
			capacity, known := e.Capacity[counter]
			switch {
			case !known:
				errs = append(errs,
					field.Invalid(location, amount.String(),
						fmt.Sprintf("capacity has no counter %q: add it to capacity or remove it here", counter)))
			case !p.Exclusive:
				errs = append(errs, validateAmount(p.Name, amount, counter, capacity, first, location)...)
			}
		}
	}
	return errs
}

// amountOf is the amount that a plugin consumes.
type amountOf struct {
	plugin string
	amount Amount
}

// validateAmount checks what one shared plugin consumes of one counter. The scheduler charges one default for a device,
// whatever plugin will attach it.
func validateAmount(
	plugin string, amount Amount, counter string, capacity Capacity, first map[string]amountOf, location *field.Path,
) field.ErrorList {
	if p := capacity.RequestPolicy; p != nil && p.Default != nil && p.Default.Cmp(amount.Quantity) != 0 {
		return field.ErrorList{field.Invalid(location, amount.String(), fmt.Sprintf(
			"differs from the default %s of capacity[%s].requestPolicy, which is what the scheduler charges: write "+
				"%s in both",
			p.Default, counter, p.Default))}
	}
	if other, ok := first[counter]; ok && other.amount.Cmp(amount.Quantity) != 0 {
		return field.ErrorList{field.Invalid(location, amount.String(), fmt.Sprintf(
			"plugin %q consumes %s, but the scheduler charges one amount for the device whatever plugin attaches it: "+
				"write %s for both, or make a policy for each",
			other.plugin, &other.amount, &other.amount))}
	}
	first[counter] = amountOf{plugin, amount}
	if capacity.RequestPolicy != nil && capacity.RequestPolicy.Default != nil {
		return nil // checked as the default
	}
	policy := RequestPolicy{Default: &amount}
	if capacity.RequestPolicy != nil {
		policy.ValidRange, policy.ValidValues = capacity.RequestPolicy.ValidRange, capacity.RequestPolicy.ValidValues
	}
	return validateDefault(&policy, capacity.Value, location)
}

// isSuffix reports whether s can end a device name.
func isSuffix(s string) bool {
	return len(s) <= maxSuffixLength && s[0] == '-' && len(validation.IsDNS1123Label(s[1:])) == 0
}

// isPluginName reports whether s is a file name that needs no care.
func isPluginName(s string) bool {
	ok, err := regexp.MatchString(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`, s)
	return ok && err == nil
}

// explained replaces the library's message in an error by a reason and a remedy.
func explained(err *field.Error, detail string) *field.Error {
	err.Detail = detail
	return err
}
