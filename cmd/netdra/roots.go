package main

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// The scheduler gives a claim what it asks for. The driver refuses it all the same where that is not what a topology needs.

// refusals say why the driver would refuse a claim with these devices, in its words. The root steps of a topology are those
// with a class.
func refusals(claim *resourceapi.ResourceClaim, given *resourceapi.AllocationResult, classes []*resourceapi.DeviceClass) []string {
	counts, order, instances := map[string]map[string]int{}, []string{}, map[string]int{}
	for i := range given.Devices.Results {
		of, ok := parametersOf(given, &given.Devices.Results[i])
		if !ok {
			continue
		}
		topology := of.NetworkTopologyRef.Name
		if counts[topology] == nil {
			counts[topology], order = map[string]int{}, append(order, topology)
		}
		counts[topology][of.Step]++
		instances[topology] = max(instances[topology], counts[topology][of.Step])
	}
	var problems []string
	who := cnichain.Claim{Namespace: claim.Namespace, Name: claim.Name}
	for _, topology := range order {
		for _, step := range rootsWithClass(classes, topology) {
			if problem := cnichain.RootProblem(who, topology, step, counts[topology][step], instances[topology]); problem != "" {
				problems = append(problems, fmt.Sprintf("NetworkTopology %s: %s", topology, problem))
			}
		}
	}
	return problems
}

// parametersOf says which step a device is for, if it is for one.
func parametersOf(given *resourceapi.AllocationResult, result *resourceapi.DeviceRequestAllocationResult) (v1alpha1.Parameters, bool) {
	if result.Driver != v1alpha1.DriverName || ptr.Deref(result.AdminAccess, false) {
		return v1alpha1.Parameters{}, false
	}
	for _, config := range given.Devices.Config {
		ours := config.Source == resourceapi.AllocationConfigSourceClass && config.Opaque != nil && config.Opaque.Driver == v1alpha1.DriverName
		if !ours || len(config.Requests) > 0 && !slices.Contains(config.Requests, result.Request) {
			continue
		}
		parameters, err := v1alpha1.DecodeParameters(config.Opaque.Parameters.Raw)
		return parameters, err == nil
	}
	return v1alpha1.Parameters{}, false
}

// rootsWithClass are the steps of a topology for which there is a class, in the order of the classes.
func rootsWithClass(classes []*resourceapi.DeviceClass, topology string) []string {
	var steps []string
	for _, class := range classes {
		step := class.Labels[v1alpha1.LabelStep]
		if class.Labels[v1alpha1.LabelTopology] == topology && !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	return steps
}

// namespaceRemarks say which topologies that a claim names may not be used in its namespace, as far as files say of it.
func (w *wanted) namespaceRemarks(claim *resourceapi.ResourceClaim) []string {
	known, said := labels.Set{corev1.LabelMetadataName: claim.Namespace}, false
	for _, namespace := range w.namespaces {
		if namespace.Name == claim.Namespace {
			known, said = labels.Merge(namespace.Labels, known), true
		}
	}
	var remarks []string
	for _, topology := range w.topologies {
		selector, err := metav1.LabelSelectorAsSelector(topology.Spec.AllowedNamespaces)
		if err != nil || topology.Spec.AllowedNamespaces == nil || !names(claim, classes(topology)) || selector.Matches(known) {
			continue
		}
		remark := fmt.Sprintf("NetworkTopology %s may not be used in namespace %s: its allowedNamespaces want %s", topology.Name, claim.Namespace, selector)
		if !said {
			remark += "; if the namespace has such labels, give it with -f, too"
		}
		remarks = append(remarks, remark)
	}
	return remarks
}

// topologyRemarks say what to know of the topologies that a claim names, as far as files have them.
func (w *wanted) topologyRemarks(claim *resourceapi.ResourceClaim) []string {
	var remarks []string
	for _, topology := range w.topologies {
		if !names(claim, classes(topology)) {
			continue
		}
		for _, remark := range cnichain.Remarks(topology, w.schemas) {
			remarks = append(remarks, fmt.Sprintf("NetworkTopology %s: %s", topology.Name, remark))
		}
	}
	return remarks
}

// names says whether a claim asks for one of the classes.
func names(claim *resourceapi.ResourceClaim, classes []string) bool {
	return slices.ContainsFunc(claim.Spec.Devices.Requests, func(request resourceapi.DeviceRequest) bool {
		return request.Exactly != nil && slices.Contains(classes, request.Exactly.DeviceClassName) ||
			slices.ContainsFunc(request.FirstAvailable, func(sub resourceapi.DeviceSubRequest) bool { return slices.Contains(classes, sub.DeviceClassName) })
	})
}
