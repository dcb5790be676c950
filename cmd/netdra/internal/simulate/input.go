package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/deviceclasses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Input is what files say that is to be tried, and what it needs.
type Input struct {
	policies          []policyapi.DeviceExposurePolicy
	topologies        []*v1alpha1.NetworkTopology
	topologyDocuments []manifest.Document // where those are
	schemas           cnichain.Schemas
	namespaces        []*corev1.Namespace
	classObjects      []*resourceapi.DeviceClass
	slices            []*resourceapi.ResourceSlice
	allocated         []*resourceapi.ResourceClaim
	claims            []*resourceapi.ResourceClaim
	templates         []*resourceapi.ResourceClaimTemplate
	pods              []*corev1.Pod
	order             []metav1.Object // pods, claims and templates as they stand in the files
	trials            []trial
}

// trial is what is given devices at once.
type trial struct {
	title string
	// pod is the one that the claims are for; nil for claims without a pod.
	pod    *corev1.Pod
	claims []*resourceapi.ResourceClaim
}

// ReadInput reads what is tried, and what it needs, from files.
func ReadInput(files []string, stdin io.Reader) (*Input, error) {
	w := &Input{schemas: cnichain.DefaultSchemas()}
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
	if err := w.validate(); err != nil {
		return nil, err
	}
	return w, w.arrangeTrials()
}

// validate refuses topologies of which the controller would make no classes.
func (w *Input) validate() error {
	for i := range w.topologyDocuments {
		topology, problems := manifest.ReadTopology(&w.topologyDocuments[i], w.schemas)
		if len(problems) > 0 {
			return fmt.Errorf("a topology is not valid, so it would get no DeviceClass:\n  %s", strings.Join(problems, "\n  "))
		}
		w.topologies = append(w.topologies, topology)
	}
	return nil
}

// add reads one document, strictly.
func (w *Input) add(found *manifest.Document) error {
	switch found.Kind {
	case manifest.KindPolicy:
		p, err := manifest.DecodePolicy(found)
		if err == nil {
			w.policies = append(w.policies, *p)
		}
		return err
	case manifest.KindTopology:
		w.topologyDocuments = append(w.topologyDocuments, *found) // they are judged when all schemas are known
		return nil
	case manifest.KindSchema:
		schema, err := manifest.ReadSchema(found)
		if err == nil {
			w.schemas = w.schemas.With(*schema)
		}
		return err
	case "Namespace", "DeviceClass", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "Pod":
		return w.addKubernetes(found)
	}
	return nil
}

func (w *Input) addKubernetes(found *manifest.Document) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), resourceapi.AddToScheme(scheme)); err != nil {
		return err
	}
	object, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(found.Data, nil, nil)
	if strict, isStrict := runtime.AsStrictDecodingError(err); isStrict {
		err = errors.Join(manifest.ExplainDecodeErrors(strict.Errors(), found.Data, reflect.TypeOf(object))...)
	}
	if runtime.IsNotRegisteredError(err) {
		err = fmt.Errorf("netdra reads apiVersion %s", resourceapi.SchemeGroupVersion)
	}
	if err != nil {
		return fmt.Errorf("%s: %s %s can't be read: %w", found.Location(), found.Kind, found.Name, manifest.ExplainDecodeError(err, found.Data, reflect.TypeOf(object)))
	}
	switch o := object.(type) {
	case *resourceapi.DeviceClass:
		w.classObjects = append(w.classObjects, o)
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

// arrangeTrials makes the trials: every pod with its claims, and claims and templates that no pod names.
func (w *Input) arrangeTrials() error {
	named := map[metav1.Object]bool{}
	byPod := map[metav1.Object]trial{}
	for _, pod := range w.pods {
		t := trial{title: "pod " + fullName(pod), pod: pod}
		for i := range pod.Spec.ResourceClaims {
			claim, source, err := w.claimOf(pod, &pod.Spec.ResourceClaims[i])
			if err != nil {
				return err
			}
			named[source] = true
			if claim != nil {
				t.claims = append(t.claims, claim)
			}
		}
		byPod[pod] = t
	}
	for _, object := range w.order {
		switch o := object.(type) {
		case *corev1.Pod:
			if t := byPod[o]; len(t.claims) > 0 {
				w.trials = append(w.trials, t)
			}
		case *resourceapi.ResourceClaim:
			if !named[o] {
				w.trials = append(w.trials, trial{title: "claim " + fullName(o), claims: []*resourceapi.ResourceClaim{o}})
			}
		case *resourceapi.ResourceClaimTemplate:
			if !named[o] {
				w.trials = append(w.trials, trial{title: "a claim of template " + fullName(o), claims: []*resourceapi.ResourceClaim{fromTemplate(o, o.Name)}})
			}
		}
	}
	for _, t := range w.trials {
		for _, claim := range t.claims {
			claim.Namespace = namespaceOf(claim)
			claim.UID = types.UID(fullName(claim)) // the allocator tells claims apart by it
			if err := Complete(claim); err != nil {
				return fmt.Errorf("%s: claim %s: %w", t.title, claim.Name, err)
			}
		}
	}
	return nil
}

// claimOf finds or makes a claim of a pod. It is nil for one that has its devices already.
func (w *Input) claimOf(pod *corev1.Pod, reference *corev1.PodResourceClaim) (claim *resourceapi.ResourceClaim, source metav1.Object, err error) {
	same := func(o metav1.Object, name string) bool {
		return o.GetName() == name && namespaceOf(o) == namespaceOf(pod)
	}
	if name := ptr.Deref(reference.ResourceClaimTemplateName, ""); name != "" {
		for _, template := range w.templates {
			if same(template, name) {
				made := fromTemplate(template, pod.Name+"-"+reference.Name)
				return made, template, nil
			}
		}
		return nil, nil, fmt.Errorf("pod %s names the ResourceClaimTemplate %s, which is in none of the files", fullName(pod), name)
	}
	name := ptr.Deref(reference.ResourceClaimName, "")
	for _, claim := range w.claims {
		if same(claim, name) {
			return claim, claim, nil
		}
	}
	if slices.ContainsFunc(w.allocated, func(c *resourceapi.ResourceClaim) bool { return same(c, name) }) {
		return nil, nil, nil
	}
	return nil, nil, fmt.Errorf("pod %s names the ResourceClaim %s, which is in none of the files", fullName(pod), name)
}

func fromTemplate(template *resourceapi.ResourceClaimTemplate, name string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: template.Namespace, Name: name}, Spec: *template.Spec.Spec.DeepCopy()}
}

func namespaceOf(o metav1.Object) string { return cmp.Or(o.GetNamespace(), metav1.NamespaceDefault) }

func fullName(o metav1.Object) string { return namespaceOf(o) + "/" + o.GetName() }

// classes are those that the files hold, and those that the controller makes for their topologies.
func (w *Input) classes(listAttributes bool) []*resourceapi.DeviceClass {
	all := slices.Clone(w.classObjects)
	for _, topology := range w.topologies {
		for _, class := range deviceclasses.Of(topology, listAttributes) {
			all = append(all, &class)
		}
	}
	return all
}

// resourceSlices are a node's, as they would be published.
func resourceSlices(node string, published *draslices.Result) []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	pools := published.Resources.Pools
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		for i, slice := range pools[pool].Slices {
			all = append(all, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", pool, i)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: policyapi.AttributeDomain, NodeName: &node, Devices: slice.Devices, SharedCounters: slice.SharedCounters,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(pools[pool].Slices))},
				},
			})
		}
	}
	return all
}
