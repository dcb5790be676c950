package cnichain

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

//go:embed schemas/builtin.yaml
var builtinSchemas []byte

// Values of CNIPluginSchema fields.
const (
	prevResultOptional = "optional"
	prevResultRequired = "required"
	interfacesModifies = "modifies"
	delNetnsStalePath  = "stalePath"
	delNetnsSkip       = "skip"
)

// Schemas are the contracts of CNI plugins, by CNI type. The zero value knows none; it is immutable.
type Schemas struct {
	byType map[string]v1alpha1.CNIPluginSchemaSpec
}

// DefaultSchemas returns the contracts that are built in.
func DefaultSchemas() Schemas {
	byType, err := parseSchemas(builtinSchemas)
	if err != nil {
		panic(fmt.Sprintf("the built-in CNI plugin schemas are broken: %v", err)) // a programming error, covered by a test
	}
	return Schemas{byType: byType}
}

// With returns the schemas in which each of the cluster's replaces the one of its type.
func (s Schemas) With(schemas ...v1alpha1.CNIPluginSchema) Schemas {
	byType := maps.Clone(s.byType)
	if byType == nil {
		byType = map[string]v1alpha1.CNIPluginSchemaSpec{}
	}
	for i := range schemas {
		byType[schemas[i].Spec.CNIType] = schemas[i].Spec
	}
	return Schemas{byType: byType}
}

// Lookup returns the contract of a CNI type, and whether there is one.
func (s Schemas) Lookup(cniType string) (v1alpha1.CNIPluginSchemaSpec, bool) {
	spec, ok := s.byType[cniType]
	return spec, ok
}

func parseSchemas(data []byte) (map[string]v1alpha1.CNIPluginSchemaSpec, error) {
	byType := map[string]v1alpha1.CNIPluginSchemaSpec{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var spec v1alpha1.CNIPluginSchemaSpec
		if err := decoder.Decode(&spec); errors.Is(err, io.EOF) {
			return byType, nil
		} else if err != nil {
			return nil, err
		}
		if spec.CNIType == "" {
			return nil, errors.New("a schema without cniType")
		}
		if _, twice := byType[spec.CNIType]; twice {
			return nil, fmt.Errorf("two schemas for %s", spec.CNIType)
		}
		byType[spec.CNIType] = spec
	}
}

// makesInterface says whether a plugin of this type makes the interface CNI_IFNAME; so do plugins without a schema.
func (s Schemas) makesInterface(cniType string) bool {
	return s.byType[cniType].Output.Interfaces != interfacesModifies
}

// wantsPrevResult says whether a derived step is given its parents' results: as the step says, else as the schema says,
// else yes.
func (s Schemas) wantsPrevResult(step *v1alpha1.Step) bool {
	if step.PrevResult != "" {
		return step.PrevResult == v1alpha1.PrevResultParents
	}
	spec, known := s.byType[step.Type]
	if !known {
		return true
	}
	return spec.Input.PrevResult == prevResultRequired || spec.Input.PrevResult == prevResultOptional
}
