package importer

import (
	_ "embed"
	"fmt"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

//go:embed equivalents.yaml
var equivalentsFile []byte //nolint:gochecknoglobals // required for embedding files

// equivalents maps settings of specific plugins and NICs to settings of this project. It is read from a data file,
// because Go code must not refer to CNI plugins by name.
type equivalents struct {
	FunctionPlugin   string            `json:"functionPlugin"`
	LinkPlugin       string            `json:"linkPlugin"`
	FilePlugin       string            `json:"filePlugin"`
	NICLabels        map[string]string `json:"nicLabels"`
	NICClusterPolicy string            `json:"nicClusterPolicy"`
	NameParameter    string            `json:"nameParameter"`
	Networks         map[string]struct {
		Type           string            `json:"type"`
		ResourcePrefix string            `json:"resourcePrefix"`
		Namespace      string            `json:"namespace"`
		Parameters     map[string]string `json:"parameters"`
	} `json:"networks"`
	RDMAPlugins       []string          `json:"rdmaPlugins"`
	AnnotationPlugins []string          `json:"annotationPlugins"`
	Markers           []string          `json:"markers"`
	Functions         map[string]string `json:"functions"`
	// Withheld maps plugins to capabilities that they have but that their built-in schemas omit.
	Withheld map[string]v1alpha1.Capability `json:"withheld"`
	// Unselectable maps device plugin selectors to the reason why policies cannot select devices in this way.
	Unselectable map[string]string `json:"unselectable"`
	// Without contains, by object and field, the reason why a field has no equivalent. Unneeded contains the reason why
	// a field does not need one.
	Without  map[string]map[string]string `json:"without"`
	Unneeded map[string]map[string]string `json:"unneeded"`
}

var known = sync.OnceValue(func() *equivalents { //nolint:gochecknoglobals // the result is never modified
	var e equivalents
	if err := yaml.UnmarshalStrict(equivalentsFile, &e); err != nil {
		// This is a programming error, and a test checks the file.
		panic(fmt.Sprintf("equivalents.yaml is broken: %v", err))
	}
	return &e
})
