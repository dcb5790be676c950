package importer

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Pod annotations used by Multus.
const (
	annotationNetworks = "k8s.v1.cni.cncf.io/networks"
	annotationDefault  = "v1.multus-cni.io/default-network"
)

// workload is a pod, or an object that creates pods. Its document is modified in place, which preserves all other
// fields. pod is part of document, so modifying pod also modifies document.
type workload struct {
	*source
	document        map[string]any
	namespace, name string
	path            string // the path of the pod in the document, for use in findings
	isTemplate      bool   // the pod was found in an object of a kind that is not built into Kubernetes
	pod             map[string]any
	networks        []*selection
	composed        *network // the network that is composed of the pod's networks; nil if there is none
}

// selection is a network that a pod selects in its annotation.
type selection struct {
	*fields
	namespace, name string
	requests        podRequests
	deviceID        string
	part            *part // the part in the pod's composed network; nil if the network is not in it
}

// place returns the path of the selection in the document.
func (s *selection) place() string { return strings.TrimSuffix(s.path, ".") }

// podPaths returns, for each kind, the path of the pod in the object.
func podPaths() map[string][]string {
	template := []string{"spec", "template"}
	return map[string][]string{"Pod": nil, "Deployment": template, "StatefulSet": template, "DaemonSet": template,
		"ReplicaSet": template, "ReplicationController": template, "Job": template,
		"CronJob": {"spec", "jobTemplate", "spec", "template"}}
}

// builtInGroups matches the API groups of the kinds in podPaths. Other groups have kinds with the same names.
var builtInGroups = regexp.MustCompile(`^(v1|apps/.+|batch/v1.*)$`)

// place returns the path of the pod in the document.
func (w *workload) place() string { return strings.TrimSuffix(w.path, ".") }

// readPods reads the pod of a known kind, or all pod templates in the spec of another kind. An MPIJob, for example, has
// one for each type of replica. It returns false if there are none.
func (m *importer) readPods(o *object) (found bool) {
	keys, isKnown := podPaths()[o.kind]
	path, pod := "", o.values
	for _, key := range keys {
		path += key + "."
		pod = objectAt(pod, key)
	}
	add := func(path string, pod map[string]any) {
		found = true
		m.readPod(&workload{source: o.source, document: o.values, namespace: o.namespace, name: o.name, path: path,
			isTemplate: !isKnown || !builtInGroups.MatchString(fmt.Sprint(o.values["apiVersion"])), pod: pod})
	}
	if !isKnown || objectAt(pod, "spec") == nil { // other API groups also have kinds with these names
		eachTemplate(o.values, add)
	}
	if isKnown && !found {
		add(path, pod)
	}
	if found {
		o.forget() // the document is kept as a whole
	}
	return found
}

// eachTemplate calls do for each object with containers in its spec, at any depth of the document's spec.
func eachTemplate(document map[string]any, do func(path string, pod map[string]any)) {
	eachObject(document["spec"], []any{"spec"}, func(keys []any, object map[string]any) bool {
		if !isPod(object) {
			return true
		}
		do(joined(keys)+".", object)
		return false
	})
}

// isPod reports whether an object has containers in its spec.
func isPod(object map[string]any) bool {
	_, hasContainers := objectAt(object, "spec")["containers"].([]any)
	return hasContainers
}

// eachObject calls enter for each object in value, at any depth, with the keys and indexes that lead to it. If enter
// returns false, eachObject skips the fields of the object.
func eachObject(value any, keys []any, enter func(keys []any, object map[string]any) bool) {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			eachObject(item, append(keys, i), enter)
		}
	case map[string]any:
		if !enter(keys, value) {
			return
		}
		for _, key := range sortedKeys(value) {
			eachObject(value[key], append(keys, key), enter)
		}
	}
}

// joined returns the path that consists of keys and indexes. Building it only for reported objects keeps eachObject
// linear if a huge document has long keys.
func joined(keys []any) string {
	var path strings.Builder
	for _, key := range keys {
		if i, isIndex := key.(int); isIndex {
			fmt.Fprintf(&path, "[%d]", i)
		} else {
			fmt.Fprintf(&path, ".%s", key)
		}
	}
	return strings.TrimPrefix(path.String(), ".")
}

// readPod reads the annotation of a pod.
func (m *importer) readPod(w *workload) {
	if objectAt(w.document, "metadata") == nil || objectAt(w.pod, "spec") == nil {
		w.add(true, w.path+"spec", nil, "metadata or the spec of the pod is missing, so it was not changed: add it")
		return
	}
	annotations, _ := objectAt(w.pod, "metadata")["annotations"].(map[string]any)
	text, _ := annotations[annotationNetworks].(string)
	path := w.path + "metadata.annotations[" + annotationNetworks + "]"
	if value := annotations[annotationDefault]; value != nil {
		w.add(true, w.path+"metadata.annotations["+annotationDefault+"]", value, "the pod was not changed, since the "+
			"driver does not replace the cluster's network, and the devices that its containers request may belong to "+
			"this network: keep Multus and the device plugin for this pod, or remove the annotation")
		return
	}
	elements, err := parseSelections(text)
	if err != nil {
		w.add(true, path, text, "cannot be parsed, so the pod was not changed: %v; fix it", err)
		return
	}
	for i, element := range elements {
		f := newFields(w.source, fmt.Sprintf("%s: [%d].", path, i), element)
		s := &selection{fields: f, namespace: f.text("namespace"), name: f.text("name")}
		if s.namespace == "" {
			s.namespace = w.namespace
		}
		s.read()
		w.networks = append(w.networks, s)
	}
	m.workloads = append(m.workloads, w)
}

func objectAt(object map[string]any, key string) map[string]any {
	value, _ := object[key].(map[string]any)
	return value
}

// shortSelection matches NAMESPACE/NAME@INTERFACE.
var shortSelection = regexp.MustCompile(`^(?:([a-z0-9.-]+)/)?([a-z0-9.-]+)(?:@([^/\s]{1,15}))?$`)

// parseSelections parses the annotation, which is either JSON or a comma-separated list of NAMESPACE/NAME@INTERFACE, as
// defined in the Kubernetes Network Custom Resource Definition De-facto Standard.
func parseSelections(text string) ([]map[string]any, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "[") {
		return decodeJSON[[]map[string]any](text)
	}
	var elements []map[string]any
	for _, item := range strings.Split(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		match := shortSelection.FindStringSubmatch(item)
		if match == nil {
			return nil, fmt.Errorf("%q is not NAMESPACE/NAME@INTERFACE", item)
		}
		element := map[string]any{"name": match[2]}
		if match[1] != "" {
			element["namespace"] = match[1]
		}
		if match[3] != "" {
			element["interface"] = match[3]
		}
		elements = append(elements, element)
	}
	return elements, nil
}

// read reads the parameters that a pod sets for one interface.
func (s *selection) read() {
	s.requests = podRequests{mac: s.text("mac"), interfaceName: s.text("interface"), ips: s.texts("ips")}
	if short := s.text("interfaceRequest"); s.requests.interfaceName == "" {
		s.requests.interfaceName = short
	}
	s.deviceID = s.text("deviceID")
	s.without("selection")
	s.close()
}

// withPrefixes adds the prefix length of the network's subnet to addresses that have none. ClaimParameters require a
// prefix length, whereas Multus leaves it to the IPAM plugin.
func withPrefixes(ips []string, steps []v1alpha1.Step) ([]string, error) {
	all := slices.Clone(ips)
	for i, text := range ips {
		if strings.Contains(text, "/") {
			continue
		}
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		prefix := subnetOf(address, steps)
		if !prefix.IsValid() {
			return nil, fmt.Errorf("%s has no prefix length, and no subnet of the network contains it: write it as "+
				"ADDRESS/LENGTH",
				text)
		}
		all[i] = netip.PrefixFrom(address, prefix.Bits()).String()
	}
	return all, nil
}

// subnetField matches subnets in the configurations of host-local ("subnet") and whereabouts ("range").
var subnetField = regexp.MustCompile(`"(?:subnet|range)":"(?:[0-9A-Fa-f.:]+-)?([0-9A-Fa-f.:]+/[0-9]+)"`)

// subnetOf returns the subnet in the configuration to which an address belongs. It searches the text of the
// configuration for the parameters of known IPAM plugins, so that nesting does not matter.
func subnetOf(address netip.Addr, steps []v1alpha1.Step) netip.Prefix {
	for i := range steps {
		if steps[i].Config == nil {
			continue
		}
		for _, text := range subnetField.FindAllStringSubmatch(string(steps[i].Config.Raw), -1) {
			if prefix, err := netip.ParsePrefix(text[1]); err == nil && prefix.Masked().Contains(address) {
				return prefix.Masked()
			}
		}
	}
	return netip.Prefix{}
}
