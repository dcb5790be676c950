package importer

import (
	"fmt"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
)

// Kinds that the importer reads.
const (
	kindNetwork    = "NetworkAttachmentDefinition"
	kindConfigMap  = "ConfigMap"
	kindNodePolicy = "SriovNetworkNodePolicy"
)

// object is one input object.
type object struct {
	*fields
	kind, namespace, name string
	isRead                bool
}

// newObjects parses documents strictly, because it is unclear which value is used if a key is duplicated.
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

// keepNames restores unquoted names that YAML reads as another type, such as on and 0123.
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

// newObject reads an object's metadata. Fields that have nothing to do with networks are marked as read; all other
// fields must be read, or they become findings.
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

// annotationResource is the annotation on a network that contains the name of the device plugin resource that its pods
// request.
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

// defaultOperatorPrefix is the prefix for the operator's resources unless an administrator sets another one.
const defaultOperatorPrefix = "openshift.io"

// operatorPrefix returns the prefix for the operator's resources. The objects that create these resources do not
// contain the prefix, but the objects that request them do. If the requesting objects use no prefix or several
// prefixes, it returns the default.
func operatorPrefix(objects []*object) string {
	requested, prefixes := map[string]bool{}, map[string]bool{}
	for _, o := range objects {
		collectResources(o.values, requested)
	}
	for _, o := range objects {
		_, isNetwork := known().Networks[o.kind]
		if o.kind != kindNodePolicy && !isNetwork {
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

// collectResources adds the resources that an object requests to names. It searches at any depth, so that it also finds
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

// inside returns the fields of a JSON object in a string. JSON that cannot be parsed is reported as a finding. The path
// of a finding in the object consists of the string's path, a colon, and the path in the object.
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
