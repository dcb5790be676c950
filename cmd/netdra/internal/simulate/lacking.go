package simulate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// lacking names the drivers that do not publish a constraint's attribute on any device on a node. It only considers
// drivers whose devices would be allocated without the constraint. Their devices can never satisfy it, since
// matchAttribute and distinctAttribute fail for a device without the attribute (ResourceClaim API). It returns "" if
// there is no such driver.
func (s *Simulator) lacking(node *corev1.Node, constraint *resourceapi.DeviceConstraint,
	without []resourceapi.AllocationResult) string {
	name := ptr.Deref(constraint.MatchAttribute, ptr.Deref(constraint.DistinctAttribute, ""))
	if name == "" {
		return ""
	}
	publishes := map[string]bool{}
	for _, d := range s.devicesOn(node) {
		publishes[d.driver] = publishes[d.driver] || d.has(name)
	}
	var drivers []string
	for _, allocation := range without {
		for i := range allocation.Devices.Results {
			result := &allocation.Devices.Results[i]
			request, _, _ := strings.Cut(result.Request, "/")
			meant := len(constraint.Requests) == 0 || slices.Contains(constraint.Requests, request) ||
				slices.Contains(constraint.Requests, result.Request)
			if meant && !publishes[result.Driver] {
				drivers = append(drivers, result.Driver)
			}
		}
	}
	if len(drivers) == 0 {
		return ""
	}
	slices.Sort(drivers)
	return fmt.Sprintf("; driver %s publishes it on no device of the node",
		strings.Join(slices.Compact(drivers), " and driver "))
}

// has reports whether a device has an attribute. A name without a domain implies the driver's domain.
func (d device) has(name resourceapi.FullyQualifiedName) bool {
	if _, found := d.Attributes[resourceapi.QualifiedName(name)]; found {
		return true
	}
	id, inDomain := strings.CutPrefix(string(name), d.driver+"/")
	_, found := d.Attributes[resourceapi.QualifiedName(id)]
	return inDomain && found
}
