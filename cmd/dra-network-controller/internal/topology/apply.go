package topology

import (
	resourceapi "k8s.io/api/resource/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
)

// applyConfiguration returns exactly those fields of a class that the controller owns. If the class has a resource
// version, the API server rejects the request if the class has changed since. Owner references must have Controller and
// BlockOwnerDeletion set, as deviceclasses.Of does; otherwise, applyConfiguration panics on a nil pointer.
func applyConfiguration(class *resourceapi.DeviceClass) *resourceapply.DeviceClassApplyConfiguration {
	configuration := resourceapply.DeviceClass(class.Name).
		WithLabels(class.Labels).
		WithAnnotations(class.Annotations).
		WithSpec(applySpec(class.Spec))
	// With the UID, apply cannot recreate a class that was deleted in the meantime: the API server returns a conflict.
	// The next reconciliation then calls create, which detects a class with another owner.
	if class.ResourceVersion != "" {
		configuration.WithUID(class.UID).WithResourceVersion(class.ResourceVersion)
	}
	for _, owner := range class.OwnerReferences {
		configuration.WithOwnerReferences(metaapply.OwnerReference().
			WithAPIVersion(owner.APIVersion).
			WithKind(owner.Kind).
			WithName(owner.Name).
			WithUID(owner.UID).
			WithController(*owner.Controller).
			WithBlockOwnerDeletion(*owner.BlockOwnerDeletion))
	}
	return configuration
}

// applySpec returns the part of the spec that the controller owns by server-side apply. It must include every field
// that deviceclasses.Of may set: the API server removes a missing field from the class.
func applySpec(spec resourceapi.DeviceClassSpec) *resourceapply.DeviceClassSpecApplyConfiguration {
	configuration := resourceapply.DeviceClassSpec()
	if spec.ExtendedResourceName != nil {
		configuration.WithExtendedResourceName(*spec.ExtendedResourceName)
	}
	for _, selector := range spec.Selectors {
		cel := resourceapply.CELDeviceSelector().WithExpression(selector.CEL.Expression)
		configuration.WithSelectors(resourceapply.DeviceSelector().WithCEL(cel))
	}
	for _, config := range spec.Config {
		opaque := resourceapply.OpaqueDeviceConfiguration().
			WithDriver(config.Opaque.Driver).
			WithParameters(config.Opaque.Parameters)
		configuration.WithConfig(resourceapply.DeviceClassConfiguration().WithOpaque(opaque))
	}
	return configuration
}
