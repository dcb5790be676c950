package simulate

import (
	"errors"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cnichain"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// input contains the objects as written in the files, and the objects in a cluster that their pods reference.
type input struct {
	namespace         string // of objects without one
	policies          []policyapi.DeviceExposurePolicy
	topologyDocuments []manifest.Document // validated after all schemas are read
	schemas           cnichain.Schemas
	namespaces        []*corev1.Namespace
	classes           []*resourceapi.DeviceClass
	slices            []*resourceapi.ResourceSlice
	taintRules        []resourceapi.DeviceTaintRule
	allocated         []*resourceapi.ResourceClaim
	claims            []*resourceapi.ResourceClaim
	templates         []*resourceapi.ResourceClaimTemplate
	// live are claims from a cluster that pods in the files reference.
	live []*resourceapi.ResourceClaim
	// clusterAsked is true if objects that pods reference were looked up in a cluster.
	clusterAsked bool
	pods         []*corev1.Pod
	// definitions are the configurations in NetworkAttachmentDefinitions, by namespace/name.
	definitions map[string]string
	order       []metav1.Object // pods, claims and templates in the order in which the files list them
	workloads   []*workload
	// makers maps pods that were created from a workload to that workload.
	makers map[*corev1.Pod]*workload
	// remarks explain why objects are not simulated.
	remarks []string
}

// parse reads objects from files. Objects without a namespace get the given one.
func parse(files []string, stdin io.Reader, namespace string) (*input, error) {
	w := &input{namespace: namespace, schemas: cnichain.DefaultSchemas(), definitions: map[string]string{},
		makers: map[*corev1.Pod]*workload{}}
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
	w.dropOwned()
	return w, nil
}

// add strictly decodes one document. Documents of unknown kinds are only searched for pods. The order of the documents
// determines the order of the trials and has no other effect.
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
	}
	version, known := kubernetesKinds()[found.Kind]
	if known && version.Group == groupOf(found) {
		return w.addKubernetes(found)
	}
	w.addUnknown(found)
	return nil
}

// kubernetesKinds returns the supported Kubernetes kinds and their versions.
func kubernetesKinds() map[string]schema.GroupVersion {
	kinds := map[string]schema.GroupVersion{}
	for version, names := range map[schema.GroupVersion][]string{
		corev1.SchemeGroupVersion: {"Namespace", "Pod", "ReplicationController"},
		resourceapi.SchemeGroupVersion: {"DeviceClass", "DeviceTaintRule", "ResourceSlice", "ResourceClaim",
			"ResourceClaimTemplate"},
		appsv1.SchemeGroupVersion:  {"Deployment", "StatefulSet", "ReplicaSet"},
		batchv1.SchemeGroupVersion: {"Job"},
	} {
		for _, name := range names {
			kinds[name] = version
		}
	}
	return kinds
}

// groupOf returns the API group of a document, which distinguishes a Kubernetes Job from another project's Job.
func groupOf(found *manifest.Document) string {
	var header metav1.TypeMeta
	if yaml.Unmarshal(found.Data, &header) != nil {
		return ""
	}
	return header.GroupVersionKind().Group
}

// addDefinition only reads the configuration, since netdra does not link the Multus API types.
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
	w.complete(&definition)
	w.definitions[fullName(&definition.ObjectMeta)] = definition.Spec.Config
	return nil
}

// complete sets the default namespace on a namespaced object that has none.
func (w *input) complete(object metav1.Object) {
	if object.GetNamespace() == "" {
		object.SetNamespace(w.namespace)
	}
}

func (w *input) addKubernetes(found *manifest.Document) error {
	object, problems := manifest.DecodeStrict(found, nil, corev1.AddToScheme, resourceapi.AddToScheme,
		appsv1.AddToScheme, batchv1.AddToScheme)
	if len(problems) > 0 {
		if runtime.IsNotRegisteredError(problems[0]) {
			problems[0] = fmt.Errorf("netdra supports only apiVersion %s", kubernetesKinds()[found.Kind])
		}
		return fmt.Errorf("cannot read %s %s: %w", found.Kind, found.Name, errors.Join(found.Located(problems)...))
	}
	switch o := object.(type) {
	case *corev1.Namespace, *resourceapi.DeviceClass, *resourceapi.DeviceTaintRule, *resourceapi.ResourceSlice:
	case metav1.Object:
		w.complete(o)
	}
	switch o := object.(type) {
	case *resourceapi.DeviceClass:
		w.classes = append(w.classes, o)
	case *resourceapi.ResourceSlice:
		w.slices = append(w.slices, o)
	case *resourceapi.DeviceTaintRule:
		w.taintRules = append(w.taintRules, *o)
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
	case metav1.Object:
		if added := workloadOf(o, found.Kind); added != nil {
			return w.addWorkload(found, added)
		}
	}
	return nil
}
