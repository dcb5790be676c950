package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/deviceclasses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// tooFew finds the first request that a node could not satisfy even if all of its devices were free, and returns the
// reason; "" if there is no such request. It skips requests with alternatives and requests for all devices.
//
// It only evaluates selectors and taints without running the allocator, which allows it to report numbers. For shared
// devices, their number is meaningless, so the allocator decides whether they are sufficient.
func (s *Simulator) tooFew(ctx context.Context, node *corev1.Node, claims []*resourceapi.ResourceClaim) (string,
	error) {
	for _, claim := range claims {
		for i := range claim.Spec.Devices.Requests {
			request := &claim.Spec.Devices.Requests[i]
			if request.Exactly == nil || request.Exactly.AllocationMode != resourceapi.DeviceAllocationModeExactCount {
				continue
			}
			reason, err := s.tooFewFor(ctx, node, claim, request)
			if err != nil || reason != "" {
				return reason, err
			}
		}
	}
	return "", nil
}

func (s *Simulator) tooFewFor(ctx context.Context, node *corev1.Node, claim *resourceapi.ResourceClaim,
	request *resourceapi.DeviceRequest) (string, error) {
	class, err := classes(s.cluster.Classes).Get(request.Exactly.DeviceClassName)
	if err != nil {
		return "", err
	}
	here := s.devicesOn(node)
	ofClass, err := s.matching(ctx, here, class.Spec.Selectors)
	if err != nil {
		return "", fmt.Errorf("DeviceClass %s: %w", class.Name, err)
	}
	selected, err := s.matching(ctx, ofClass, request.Exactly.Selectors)
	if err != nil {
		return "", fmt.Errorf("request %s of claim %s/%s: %w", request.Name, claim.Namespace, claim.Name, err)
	}
	usable, tainted := untainted(selected, request.Exactly.Tolerations)
	wants := fmt.Sprintf("request %s of claim %s/%s needs %d of DeviceClass %s", request.Name, claim.Namespace,
		claim.Name, request.Exactly.Count, class.Name)
	shared := slices.ContainsFunc(usable, func(d device) bool { return ptr.Deref(d.AllowMultipleAllocations, false) })
	switch {
	case len(here) == 0:
		return "the node publishes no devices", nil
	case len(ofClass) == 0:
		none := fmt.Sprintf("of the node's %d devices none is", len(here))
		if len(here) == 1 {
			none = "the node's only device is not"
		}
		return fmt.Sprintf("%s, and %s of that class%s", wants, none, whyNone(class, here)), nil
	case len(selected) == 0:
		return fmt.Sprintf("%s, and the request's own selectors are false for %s of that class", wants,
			everyOf(len(ofClass))), nil
	case len(tainted) > 0 && int64(len(usable)) < request.Exactly.Count && !shared:
		return fmt.Sprintf("%s, and the matching ones are tainted: %s", wants, strings.Join(tainted, ", ")), nil
	case int64(len(usable)) < request.Exactly.Count && !shared:
		return fmt.Sprintf("%s, and only %d of the node's devices match", wants, len(usable)), nil
	}
	return "", nil
}

// whyNone explains why no device on a node matches the class of a topology. It returns "" for other classes.
func whyNone(class *resourceapi.DeviceClass, devices []device) string {
	plugin := deviceclasses.Plugin(class)
	if plugin == "" {
		return ""
	}
	with, rest := 0, []string{}
	for _, d := range devices {
		plugins := d.plugins()
		if slices.Contains(plugins, plugin) {
			with++
		}
		for _, name := range plugins {
			rest = append(rest, pluginName(name))
		}
	}
	slices.Sort(rest)
	plugin = pluginName(plugin)
	if with > 0 {
		return fmt.Sprintf(": its selector is false for %s with CNI plugin %s", everyOf(with), plugin)
	}
	return fmt.Sprintf(": it requires CNI plugin %s, and the devices have %s", plugin,
		cmp.Or(strings.Join(slices.Compact(rest), ", "), "none"))
}

func everyOf(devices int) string {
	if devices == 1 {
		return "the only device"
	}
	return fmt.Sprintf("all %d devices", devices)
}

// pluginName returns the CNI plugin to which an attribute belongs, or the attribute if it belongs to no built-in
// schema.
func pluginName(attribute string) string {
	for _, name := range slices.Sorted(maps.Keys(cnichain.DefaultSchemas().All())) {
		if policyapi.CNIAttribute(name) == attribute {
			return name
		}
	}
	return attribute
}

// plugins returns the CNI plugins supported by a device, according to its boolean attributes or its list attribute.
func (d device) plugins() []string {
	if d.driver != v1alpha1.DriverName {
		return nil
	}
	names := slices.Clone(d.Attributes[policy.SupportedCNIs].StringValues)
	for attribute, value := range d.Attributes {
		if name, ok := strings.CutPrefix(string(attribute), policyapi.CNIDomain+"/"); ok &&
			ptr.Deref(value.BoolValue, false) {
			names = append(names, name)
		}
	}
	return names
}

// device is a published device.
type device struct {
	*resourceapi.Device
	driver, pool string
}

// devicesOn returns the devices in slices for a single node.
func (s *Simulator) devicesOn(node *corev1.Node) []device {
	var found []device
	for _, slice := range s.cluster.Slices {
		if ptr.Deref(slice.Spec.NodeName, "") != node.Name {
			continue
		}
		for i := range slice.Spec.Devices {
			found = append(found, device{Device: &slice.Spec.Devices[i], driver: slice.Spec.Driver,
				pool: slice.Spec.Pool.Name})
		}
	}
	return found
}

// matching returns the devices that match all selectors.
//
// As in the scheduler, if a selector cannot be evaluated for one device, the whole call fails.
func (s *Simulator) matching(ctx context.Context, devices []device, selectors []resourceapi.DeviceSelector) ([]device,
	error) {
	var found []device
	for _, d := range devices {
		matches := true
		for _, selector := range selectors {
			if selector.CEL == nil || !matches {
				continue
			}
			compiled := s.compiled.GetOrCompile(selector.CEL.Expression)
			if compiled.Error != nil {
				return nil, compiled.Error
			}
			matched, _, err := compiled.DeviceMatches(ctx, dracel.Device{Driver: d.driver,
				AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity})
			if err != nil {
				return nil, fmt.Errorf("on device %s of pool %s, which ends the scheduling of the pod: %w", d.Name,
					d.pool, err)
			}
			matches = matched
		}
		if matches {
			found = append(found, d)
		}
	}
	return found, nil
}

// untainted returns the devices whose taints are all tolerated. tainted describes each remaining device and its taint.
func untainted(devices []device, tolerations []resourceapi.DeviceToleration) (usable []device, tainted []string) {
	for _, d := range devices {
		reason := ""
		for i := range d.Taints {
			taint := &d.Taints[i]
			tolerated := slices.ContainsFunc(tolerations,
				func(t resourceapi.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, *taint) })
			if taint.Effect != resourceapi.DeviceTaintEffectNone && !tolerated {
				cause := *taint
				cause.Effect = "" // shows only the key and value
				reason = fmt.Sprintf("%s (%s)", d.Name, strings.TrimSuffix(cause.String(), ":"))
			}
		}
		if reason == "" {
			usable = append(usable, d)
		} else {
			tainted = append(tainted, reason)
		}
	}
	return usable, tainted
}

// impossible explains why claims do not fit even on an empty node. It removes each constraint and each requested amount
// in turn, and returns the first one whose removal makes the claims fit. Reporting one obstacle is enough, because
// users correct one thing at a time.
func (s *Simulator) impossible(ctx context.Context, node *corev1.Node, claims []*resourceapi.ResourceClaim) (string,
	error) {
	without := func(i int, change func(*resourceapi.DeviceClaim)) ([]resourceapi.AllocationResult, error) {
		changed := slices.Clone(claims)
		changed[i] = claims[i].DeepCopy()
		change(&changed[i].Spec.Devices)
		return s.allocate(ctx, node, changed, nil)
	}
	for i, claim := range claims {
		for j, constraint := range claim.Spec.Devices.Constraints {
			results, err := without(i, func(c *resourceapi.DeviceClaim) { c.Constraints = slices.Delete(c.Constraints, j, j+1) })
			if err != nil || results != nil {
				return fmt.Sprintf("no devices of the node meet constraint %d of claim %s, %s; without it the claims would "+
					"fit", j, fullName(claim), describe(&constraint)), err
			}
		}
		for j, request := range claim.Spec.Devices.Requests {
			if request.Exactly == nil || request.Exactly.Capacity == nil {
				continue
			}
			results, err := without(i, func(c *resourceapi.DeviceClaim) { c.Requests[j].Exactly.Capacity = nil })
			if err != nil || results != nil {
				return fmt.Sprintf("no device of the node has as much capacity as request %s of claim %s needs (%s); they "+
					"would fit with less", request.Name, fullName(claim), amounts(request.Exactly.Capacity.Requests)), err
			}
		}
	}
	return "the node's devices cannot satisfy the claims together, also without any one of their constraints and " +
		"amounts", nil
}

func describe(constraint *resourceapi.DeviceConstraint) string {
	subject := "all requests"
	if len(constraint.Requests) > 0 {
		subject = strings.Join(constraint.Requests, " and ")
	}
	switch {
	case constraint.MatchAttribute != nil:
		return fmt.Sprintf("that %s of %s be the same", *constraint.MatchAttribute, subject)
	case constraint.DistinctAttribute != nil:
		return fmt.Sprintf("that %s of %s differ", *constraint.DistinctAttribute, subject)
	}
	return "of an unknown kind"
}

func amounts(requests map[resourceapi.QualifiedName]resource.Quantity) string {
	var texts []string
	for name, amount := range requests {
		texts = append(texts, fmt.Sprintf("%s=%s", name, amount.String()))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}
