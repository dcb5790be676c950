package manifest

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	policybeta "github.com/dra-networking/dra-network-driver/policy/v1beta1"
)

// KindPolicy is the kind of policies.
const KindPolicy = "DeviceExposurePolicy"

// defaultPriority is the priority that the API server sets by default.
const defaultPriority = 100

// ReadPolicies reads the policies from files, with the API server's defaults. It returns an error if there are none,
// because an empty list would look like a cluster that hides every device.
func ReadPolicies(files []string, stdin io.Reader) ([]policyapi.DeviceExposurePolicy, error) {
	var policies []policyapi.DeviceExposurePolicy
	first := map[string]string{} // the location of each policy, by name
	for _, file := range files {
		documents, err := Read(file, stdin)
		if err != nil {
			return nil, err
		}
		for i := range documents {
			found := &documents[i]
			if found.Kind != KindPolicy {
				continue
			}
			p, err := DecodePolicy(found)
			if err != nil {
				return nil, err
			}
			if other, duplicate := first[p.Name]; duplicate {
				return nil, fmt.Errorf("%s: policy %s is already defined at %s: in a cluster, one would replace the "+
					"other", found.Location(), p.Name, other)
			}
			first[p.Name] = found.Location()
			policies = append(policies, *p)
		}
	}
	switch {
	case len(policies) == 0 && len(files) > 0:
		return nil, fmt.Errorf("cannot find a %s in %s, so nothing would be published; pass a file that contains one",
			KindPolicy, strings.Join(files, ", "))
	case len(policies) == 0:
		return nil, fmt.Errorf("cannot find a %s, so nothing would be published; pass a file with -f", KindPolicy)
	}
	return policies, nil
}

// DecodePolicy decodes a policy strictly: an unknown or duplicate field is an error. Missing fields get the API
// server's defaults. These are set before decoding, so that a field that is explicitly empty stays empty.
func DecodePolicy(found *Document) (*policyapi.DeviceExposurePolicy, error) {
	p := &policyapi.DeviceExposurePolicy{Spec: policyapi.DeviceExposurePolicySpec{
		Priority: defaultPriority, Action: policyapi.ActionExpose,
	}}
	_, problems := decodeServed(found, p, policyapi.AddToScheme, policybeta.AddToScheme)
	switch {
	case len(problems) > 0:
		return nil, fmt.Errorf("cannot read policy %s: %w", found.Name, errors.Join(found.Located(problems)...))
	case p.Name == "":
		return nil, fmt.Errorf("%s: the policy has no name; set metadata.name", found.Location())
	}
	return p, nil
}

// TypeMismatches returns the comparisons in policies with a literal of the wrong type. Nodes do not report a mismatch
// in a comparison that never selects a device.
func TypeMismatches(policies []policyapi.DeviceExposurePolicy) []policy.Problem {
	var problems []policy.Problem
	for i := range policies {
		if err := policy.CheckTypes(policies[i].Spec.Selector.CEL); err != nil {
			problems = append(problems, policy.Problem{Policy: policies[i].Name, Message: err.Error()})
		}
	}
	return problems
}
