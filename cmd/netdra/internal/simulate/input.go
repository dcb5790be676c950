package simulate

import (
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cnichain"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// input has the objects of the files as they are written. Parsing returns it, and nothing changes it later.
type input struct {
	policies          []policyapi.DeviceExposurePolicy
	topologyDocuments []manifest.Document // they are validated when all schemas are known
	schemas           cnichain.Schemas
	namespaces        []*corev1.Namespace
	classes           []*resourceapi.DeviceClass
	slices            []*resourceapi.ResourceSlice
	allocated         []*resourceapi.ResourceClaim
	claims            []*resourceapi.ResourceClaim
	templates         []*resourceapi.ResourceClaimTemplate
	pods              []*corev1.Pod
	// definitions are the configurations in NetworkAttachmentDefinitions, by namespace/name.
	definitions map[string]string
	order       []metav1.Object // pods, claims and templates as they stand in the files
}

// parse reads what is tried, and what it needs, from files.
func parse(files []string, stdin io.Reader) (*input, error) {
	w := &input{schemas: cnichain.DefaultSchemas(), definitions: map[string]string{}}
	for _, file := range files {
		documents, err := manifest.Read(file, stdin)
		if err != nil {
			return nil, err
		}
		for i := range documents {
			if err := w.add(&documents[i]); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

// add reads one document, strictly. A document of another kind is none of ours. The order of documents is kept for what
// is tried, and does not matter for the rest.
func (w *input) add(found *manifest.Document) error {
	switch found.Kind {
	case manifest.KindPolicy:
		p, err := manifest.DecodePolicy(found)
		if err == nil {
			w.policies = append(w.policies, *p)
		}
		return err
	case manifest.KindTopology:
		w.topologyDocuments = append(w.topologyDocuments, *found)
		return nil
	case manifest.KindSchema:
		schema, err := manifest.ReadSchema(found)
		if err == nil {
			w.schemas = w.schemas.With(*schema)
		}
		return err
	case "NetworkAttachmentDefinition":
		return w.addDefinition(found)
	case "Namespace", "DeviceClass", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "Pod":
		return w.addKubernetes(found)
	}
	return nil
}

// addDefinition reads only the configuration: the types of Multus are not linked into netdra.
func (w *input) addDefinition(found *manifest.Document) error {
	var definition struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Config string `json:"config"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(found.Data, &definition); err != nil {
		return fmt.Errorf("%s: %s %s cannot be read: %w", found.Location(), found.Kind, found.Name, err)
	}
	w.definitions[fullName(&definition.ObjectMeta)] = definition.Spec.Config
	return nil
}

func (w *input) addKubernetes(found *manifest.Document) error {
	object, problems := manifest.DecodeStrict(found, nil, corev1.AddToScheme, resourceapi.AddToScheme)
	if len(problems) > 0 {
		if runtime.IsNotRegisteredError(problems[0]) {
			problems[0] = fmt.Errorf("netdra reads apiVersion %s", resourceapi.SchemeGroupVersion)
		}
		return fmt.Errorf("cannot read %s %s: %w", found.Kind, found.Name, errors.Join(found.Located(problems)...))
	}
	switch o := object.(type) {
	case *resourceapi.DeviceClass:
		w.classes = append(w.classes, o)
	case *resourceapi.ResourceSlice:
		w.slices = append(w.slices, o)
	case *resourceapi.ResourceClaim:
		if o.Status.Allocation != nil {
			w.allocated = append(w.allocated, o)
			return nil
		}
		w.claims, w.order = append(w.claims, o), append(w.order, o)
	case *resourceapi.ResourceClaimTemplate:
		w.templates, w.order = append(w.templates, o), append(w.order, o)
	case *corev1.Namespace:
		w.namespaces = append(w.namespaces, o)
	case *corev1.Pod:
		w.pods, w.order = append(w.pods, o), append(w.order, o)
	}
	return nil
}
