package importer

import (
	"fmt"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
)

// Kinds that the importer can read.
const (
	kindNetwork          = "NetworkAttachmentDefinition"
	kindConfigMap        = "ConfigMap"
	kindNodePolicy       = "SriovNetworkNodePolicy"
	kindNICClusterPolicy = "NicClusterPolicy"
	kindNICNodePolicy    = "NicNodePolicy"
)

// object is one input object.
type object struct {
	*fields
	kind, namespace, name string
	isRead                bool
}

// newObjects parses documents strictly, because with duplicate keys, it would be unclear which value is used.
func newObjects(documents []manifest.Document, findings *[]Finding) ([]*object, error) {
	var all []*object
	for i := range documents {
		var values map[string]any
		if err := yaml.UnmarshalStrict(documents[i].Data, &values); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", documents[i].Location(), err)
		}
		keepNames(values, documents[i].Data)
		all = append(all, newObject(documents[i].Location(), i, values, findings))
	}
	return all, nil
}

// keepNames restores unquoted names that YAML interprets as another type, such as on and 0123.
func keepNames(values map[string]any, data []byte) {
	var written struct {
		Metadata map[string]goyaml.Node
	}
	metadata, _ := values["metadata"].(map[string]any)
	if goyaml.Unmarshal(data, &written) != nil {
		return // metadata is not an object
	}
	for _, key := range []string{"name", "namespace"} {
		if node := written.Metadata[key]; node.Kind == goyaml.ScalarNode && metadata[key] != nil {
			metadata[key] = node.Value
		}
	}
}

// newObject reads an object's metadata. Fields that have nothing to do with networks are marked as read. All other
// fields become findings unless they are read later.
func newObject(location string, order int, values map[string]any, findings *[]Finding) *object {
	s := &source{location: location, order: order, findings: findings}
	o := &object{fields: newFields(s, "", values)}
	o.kind, _ = values["kind"].(string)
	metadata, _ := values["metadata"].(map[string]any)
	o.name, _ = metadata["name"].(string)
	o.namespace, _ = metadata["namespace"].(string)
	s.object = strings.TrimSpace(o.kind + " " + qualified(o.namespace, o.name))
	o.ignore("apiVersion", "kind", "status")
	return o
}

func qualified(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// annotationResource is the annotation on a network that specifies the device plugin resource for its pods to request.
const annotationResource = "k8s.v1.cni.cncf.io/resourceName"

// readMetadata marks the fields that the API server sets as read, and returns the annotations.
func (o *object) readMetadata() *fields {
	metadata := o.child("metadata")
	metadata.ignore("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
		"selfLink", "ownerReferences", "finalizers")
	metadata.without("metadata")
	annotations := metadata.child("annotations")
	annotations.ignore("kubectl.kubernetes.io/last-applied-configuration")
	return annotations
}

// defaultOperatorPrefix is the prefix of the SR-IOV operator's resources unless an administrator has changed it.
const defaultOperatorPrefix = "openshift.io"

// operatorPrefix returns the prefix of the SR-IOV operator's resources. Only the objects that request these resources
// contain the prefix, not the objects that create them. If the requests contain no prefix or different prefixes,
// operatorPrefix returns the default.
func operatorPrefix(objects []*object) string {
	requested, prefixes := map[string]bool{}, map[string]bool{}
	for _, o := range objects {
		collectResources(o.values, requested)
	}
	for _, o := range objects {
		if o.kind != kindNodePolicy && known().Networks[o.kind].ResourcePrefix != defaultOperatorPrefix {
			continue
		}
		name, _ := objectAt(o.values, "spec")["resourceName"].(string)
		for resource := range requested {
			if prefix, isSame := strings.CutSuffix(resource, "/"+name); isSame {
				prefixes[prefix] = true
			}
		}
	}
	if len(prefixes) != 1 {
		return defaultOperatorPrefix
	}
	return sortedKeys(prefixes)[0]
}

// collectResources adds the resources requested in an object to names. It searches at any depth, so that it also finds
// requests in kinds that are not translated.
func collectResources(value any, names map[string]bool) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			collectResources(item, names)
		}
	case map[string]any:
		for key, item := range value {
			if text, isText := item.(string); isText && key == annotationResource {
				names[text] = true
			}
			if key == "limits" || key == "requests" {
				for name := range objectAt(value, key) {
					names[name] = true
				}
			}
			collectResources(item, names)
		}
	}
}

// inside returns the fields of a JSON object in a string. JSON that cannot be parsed becomes a finding. For findings in
// the object, the path consists of the path of the string, a colon, and the path in the object.
func (f *fields) inside(key string) *fields {
	text := f.text(key)
	if strings.TrimSpace(text) == "" {
		return nil
	}
	values, err := decodeJSON[map[string]any](text)
	if err != nil {
		f.add(true, f.path+key, text, "is not a valid JSON object, so it was not translated: %v; fix it", err)
		return nil
	}
	return f.adopt(f.path+key+": ", values)
}
