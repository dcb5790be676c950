package manifest

import (
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	policybeta "github.com/dra-networking/dra-network-driver/policy/v1beta1"
)

// TopologySource specifies the files with the topology and the plugin schemas, and the name of the topology.
type TopologySource struct {
	File    string
	Name    string
	Schemas string
}

// Load reads the topology and the schemas. The error lists each problem on a separate line, with file and path.
func (s *TopologySource) Load(stdin io.Reader) (*v1alpha1.NetworkTopology, cnichain.Schemas, error) {
	schemas, err := LoadSchemas(s.Schemas, stdin)
	if err != nil {
		return nil, schemas, err
	}
	documents, err := Read(s.File, stdin)
	if err != nil {
		return nil, schemas, err
	}
	found, err := ChooseTopology(s.File, documents, s.Name)
	if err != nil {
		return nil, schemas, err
	}
	topology, problems := ReadTopology(found, schemas)
	return topology, schemas, invalidError(topology, problems)
}

// invalidError combines the problems in a topology into one error; nil if there are none.
func invalidError(topology *v1alpha1.NetworkTopology, problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	title := "the topology"
	if topology != nil && topology.Name != "" {
		title += " " + topology.Name
	}
	return fmt.Errorf("%s is not valid, so nothing was run:\n  %s", title, strings.Join(problems, "\n  "))
}

// ReadTopology decodes and validates one document. A problem has the form "file:line: path: reason".
func ReadTopology(found *Document, schemas cnichain.Schemas) (*v1alpha1.NetworkTopology, []string) {
	return read(found, KindTopology, func(topology *v1alpha1.NetworkTopology) field.ErrorList {
		return validateTopology(topology, schemas)
	})
}

// read decodes a document. It only validates a document that it could decode completely, because a missing field may
// cause further problems.
func read[T runtime.Object](found *Document, kind string, validate func(T) field.ErrorList) (T, []string) {
	var lines []string
	object, problems := decode[T](found, kind)
	for _, problem := range found.Located(problems) {
		lines = append(lines, problem.Error())
	}
	if len(problems) > 0 {
		return object, lines
	}
	for _, problem := range validate(object) {
		lines = append(lines, found.Position(problem.Field)+": "+problem.Error())
	}
	return object, lines
}

// validateTopology returns the same problems as the controller: invalid names and namespaces, invalid steps, and
// invalid expressions in root steps. However, it does not check whether the name of a plugin is valid as an attribute
// name. It also checks the object name, because there is no API server to do so.
func validateTopology(topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas) field.ErrorList {
	var problems field.ErrorList
	name := field.NewPath("metadata", "name")
	for _, problem := range validation.IsDNS1123Subdomain(topology.Name) {
		problems = append(problems, field.Invalid(name, topology.Name, problem))
	}
	if size := len(topology.Name); size > validation.LabelValueMaxLength {
		problems = append(problems, field.TooLong(name, topology.Name, validation.LabelValueMaxLength))
	}
	if allowed := topology.Spec.AllowedNamespaces; allowed != nil {
		if _, err := metav1.LabelSelectorAsSelector(allowed); err != nil {
			problems = append(problems, field.Invalid(field.NewPath("spec", "allowedNamespaces"), allowed, err.Error()))
		}
	}
	problems = append(problems, cnichain.Validate(topology, schemas)...)
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		if len(step.DependOn) > 0 || step.Selector == nil || strings.TrimSpace(step.Selector.CEL) == "" {
			continue // cnichain.Validate reports missing selectors
		}
		if err := errors.Join(policy.CheckClassSelector(step.Selector.CEL),
			policy.CheckTypes(step.Selector.CEL)); err != nil {
			problems = append(problems, field.Invalid(field.NewPath("spec", "steps").Index(i).Child("selector", "cel"),
				step.Selector.CEL, err.Error()))
		}
	}
	return problems
}

// RootSteps returns the names of the steps that use an allocated device, in order.
func RootSteps(topology *v1alpha1.NetworkTopology) []string {
	var names []string
	for i := range topology.Spec.Steps {
		if len(topology.Spec.Steps[i].DependOn) == 0 {
			names = append(names, topology.Spec.Steps[i].Name)
		}
	}
	return names
}

// ClassNames returns the DeviceClasses that a claim must request devices from, one per root step.
func ClassNames(topology *v1alpha1.NetworkTopology) []string {
	roots := RootSteps(topology)
	names := make([]string, len(roots))
	for i, root := range roots {
		names[i] = v1alpha1.ClassName(topology.Name, root)
	}
	return names
}

// ReadRange decodes and validates one document. A problem has the form "file:line: path: reason".
func ReadRange(found *Document) (*v1alpha1.AddressRange, []string) {
	return read(found, KindRange, func(addressRange *v1alpha1.AddressRange) field.ErrorList {
		_, invalid := addresses.Parse(&addressRange.Spec)
		return invalid
	})
}

// LoadSchemas returns the built-in schemas and the schemas in the file. A schema in the file overrides the built-in
// schema for the same plugin. LoadSchemas continues after an error, so that it checks every schema in the file.
func LoadSchemas(path string, stdin io.Reader) (cnichain.Schemas, error) {
	schemas := cnichain.DefaultSchemas()
	if path == "" {
		return schemas, nil
	}
	documents, err := Read(path, stdin)
	if err != nil {
		return schemas, err
	}
	var problems []error
	for i := range documents {
		schema, err := ReadSchema(&documents[i])
		if err != nil {
			problems = append(problems, err)
			continue
		}
		schemas = schemas.With(*schema)
	}
	if len(documents) == 0 {
		problems = append(problems, fmt.Errorf("%s is empty: it must contain objects of kind %s", path, KindSchema))
	}
	return schemas, errors.Join(problems...)
}

// ReadSchema decodes a schema and returns an error if the API server or the webhook would reject it.
func ReadSchema(found *Document) (*v1alpha1.CNIPluginSchema, error) {
	schema, problems := read(found, KindSchema, func(schema *v1alpha1.CNIPluginSchema) field.ErrorList {
		return cnichain.ValidateSchema(&schema.Spec)
	})
	if len(problems) > 0 {
		return schema, errors.New(strings.Join(problems, "\n"))
	}
	return schema, nil
}

// KindPolicy is the kind of policies.
const KindPolicy = "DeviceExposurePolicy"

// defaultPriority is the default priority that the API server sets.
const defaultPriority = 100

// ReadPolicies reads the policies in files and applies the API server's defaults. It returns an error if there are no
// policies, because an empty list would look like a cluster that hides every device.
func ReadPolicies(files []string, stdin io.Reader) ([]policyapi.DeviceExposurePolicy, error) {
	var policies []policyapi.DeviceExposurePolicy
	first := map[string]string{} // maps each policy name to its location
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
// server's defaults. The defaults are set before decoding, so that an explicitly empty field stays empty.
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

// TypeMismatches returns the comparisons in policies that use a literal of the wrong type. Nodes do not report such
// mismatches if the comparison never selects a device.
func TypeMismatches(policies []policyapi.DeviceExposurePolicy) []policy.Problem {
	var problems []policy.Problem
	for i := range policies {
		if err := policy.CheckTypes(policies[i].Spec.Selector.CEL); err != nil {
			problems = append(problems, policy.Problem{Policy: policies[i].Name, Message: err.Error()})
		}
	}
	return problems
}
