package topology

import (
	resourceapi "k8s.io/api/resource/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
)

// applyConfiguration returns exactly the fields of a class that the controller owns. A resource version, where the
// class has one, makes the API server refuse to change another version of it. Owner references must have Controller and
// BlockOwnerDeletion set, as deviceclasses.Of does: a nil pointer would panic here.
func applyConfiguration(class *resourceapi.DeviceClass) *resourceapply.DeviceClassApplyConfiguration {
	configuration := resourceapply.DeviceClass(class.Name).
		WithLabels(class.Labels).
		WithAnnotations(class.Annotations).
		WithSpec(applySpec(class.Spec))
	// With the UID an apply cannot make a class that was deleted meanwhile: the API server answers with a conflict, and
	// the next look makes it with create, which sees a class of somebody else.
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

// applySpec is the part of a class that the controller owns by server-side apply. It has every field that
// deviceclasses.Of may set: a field that is missing here would be removed from the class by the API server.
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
