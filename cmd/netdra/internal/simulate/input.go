package simulate

import (
	"errors"
	"fmt"
	"io"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cnichain"
)

// parse reads objects from files. It returns an error if the controller would reject any of the topologies.
func parse(files []string, stdin io.Reader, namespace string) (*model, error) {
	m := &model{namespace: namespace, schemas: cnichain.DefaultSchemas(), definitions: map[string]string{},
		makers: map[*corev1.Pod]*workload{}, users: map[types.UID]string{}, started: map[types.UID]string{}}
	var topologies []*manifest.Document // validated after all schemas are read
	for _, file := range files {
		documents, err := manifest.Read(file, stdin)
		if err != nil {
			return nil, err
		}
		for i := range documents {
			if documents[i].Kind == manifest.KindTopology {
				topologies = append(topologies, &documents[i])
			} else if err := m.add(&documents[i]); err != nil {
				return nil, err
			}
		}
	}
	for _, document := range topologies {
		topology, problems := manifest.ReadTopology(document, m.schemas)
		if len(problems) > 0 {
			return nil, fmt.Errorf("a topology is not valid, so it would get no DeviceClass:\n  %s",
				strings.Join(problems, "\n  "))
		}
		m.topologies = append(m.topologies, topology)
	}
	m.dropOwned()
	return m, nil
}

// add strictly decodes one document. In documents of unknown kinds, it only looks for pods. The order of the documents
// determines the order of the trials, but has no other effect.
func (m *model) add(found *manifest.Document) error {
	switch found.Kind {
	case manifest.KindPolicy:
		p, err := manifest.DecodePolicy(found)
		if err == nil {
			m.policies = append(m.policies, *p)
		}
		return err
	case manifest.KindSchema:
		schema, err := manifest.ReadSchema(found)
		if err == nil {
			m.schemas = m.schemas.With(*schema)
		}
		return err
	case "NetworkAttachmentDefinition":
		return m.addDefinition(found)
	}
	version, known := kubernetesKinds()[found.Kind]
	if known && version.Group == groupOf(found) {
		return m.addKubernetes(found)
	}
	m.addUnknown(found)
	return nil
}

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

// groupOf returns a document's API group, which distinguishes a Kubernetes Job from another project's Job.
func groupOf(found *manifest.Document) string {
	var header metav1.TypeMeta
	if yaml.Unmarshal(found.Data, &header) != nil {
		return ""
	}
	return header.GroupVersionKind().Group
}

// addDefinition reads only the configuration, since netdra does not link the Multus API types.
func (m *model) addDefinition(found *manifest.Document) error {
	var definition struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Config string `json:"config"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(found.Data, &definition); err != nil {
		return fmt.Errorf("%s: %s %s cannot be read: %w", found.Location(), found.Kind, found.Name, err)
	}
	m.complete(&definition)
	m.definitions[fullName(&definition.ObjectMeta)] = definition.Spec.Config
	return nil
}

func (m *model) complete(object metav1.Object) {
	if object.GetNamespace() == "" {
		object.SetNamespace(m.namespace)
	}
}

func (m *model) addKubernetes(found *manifest.Document) error {
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
		m.complete(o)
	}
	switch o := object.(type) {
	case *resourceapi.DeviceClass:
		m.classes = append(m.classes, o)
	case *resourceapi.ResourceSlice:
		m.slices = append(m.slices, o)
	case *resourceapi.DeviceTaintRule:
		m.taintRules = append(m.taintRules, *o)
	case *resourceapi.ResourceClaim:
		if o.Status.Allocation != nil {
			m.allocated = append(m.allocated, o)
			return nil
		}
		m.order = append(m.order, o)
	case *resourceapi.ResourceClaimTemplate:
		m.order = append(m.order, o)
	case *corev1.Pod:
		m.order = append(m.order, o)
	case *corev1.Namespace:
		m.namespaces = append(m.namespaces, o)
	case metav1.Object:
		if added := workloadOf(o, found.Kind); added != nil {
			return m.addWorkload(found, added)
		}
	}
	return nil
}
