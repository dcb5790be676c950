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

// KindPolicy is the kind of what an administrator says of devices.
const KindPolicy = "DeviceExposurePolicy"

// defaultPriority is what the API server gives a policy without a priority.
const defaultPriority = 100

// ReadPolicies reads the policies of files, each complete as the API server would have it. None at all is an error: an
// empty list would look like a cluster that hides every device.
func ReadPolicies(files []string, stdin io.Reader) ([]policyapi.DeviceExposurePolicy, error) {
	var policies []policyapi.DeviceExposurePolicy
	first := map[string]string{} // where a policy is, by name
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
				return nil, fmt.Errorf("%s: there is a policy %s already, at %s: in a cluster one would replace the "+
					"other", found.Location(), p.Name, other)
			}
			first[p.Name] = found.Location()
			policies = append(policies, *p)
		}
	}
	switch {
	case len(policies) == 0 && len(files) > 0:
		return nil, fmt.Errorf("there is no %s in %s, so nothing would be published; give a file that has one",
			KindPolicy, strings.Join(files, ", "))
	case len(policies) == 0:
		return nil, fmt.Errorf("there is no %s, so nothing would be published; give a file of them with -f", KindPolicy)
	}
	return policies, nil
}

// DecodePolicy reads a policy strictly: a field that the type does not have, or has twice, is an error. What is absent
// is as the API server would set it. Defaults are set before decoding, so that a value that is written as empty stays
// empty.
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

// TypeMismatches are the problems with what policies compare attributes with: nodes have nothing to say of those by
// which a device is never selected.
func TypeMismatches(policies []policyapi.DeviceExposurePolicy) []policy.Problem {
	var problems []policy.Problem
	for i := range policies {
		if err := policy.CheckTypes(policies[i].Spec.Selector.CEL); err != nil {
			problems = append(problems, policy.Problem{Policy: policies[i].Name, Message: err.Error()})
		}
	}
	return problems
}
