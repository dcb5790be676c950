package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/cnichain/v1beta1"
)

// Document is an object in a file: a YAML document or an item in a list.
type Document struct {
	file string
	node *yaml.Node // with the line numbers in the file
	// Data is the object as YAML. Line numbers in it do not match those in the file.
	Data []byte
	Kind string
	Name string
}

// Location returns FILE:LINE, a form that editors can open.
func (d *Document) Location() string { return d.place(d.node) }

func (d *Document) place(node *yaml.Node) string { return fmt.Sprintf("%s:%d", d.file, node.Line) }

// maxFile is the maximum file size in bytes. Kubernetes objects are limited to about 1.5 MiB (etcd's default request
// limit).
const maxFile = 16 << 20

// Read reads the objects from a file, or from stdin if path is "-". It supports multiple documents and lists such as
// those written by "kubectl get -o yaml". It skips documents that contain only comments. The input size is checked
// before parsing. Standard input can be read only once, so if "-" is given twice, the second input is empty.
func Read(path string, stdin io.Reader) ([]Document, error) {
	name, reader := path, stdin
	if path == "-" {
		name = "stdin"
	} else {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path, errors.Unwrap(err))
		}
		defer func() { _ = file.Close() }()
		reader = file
	}
	data, err := io.ReadAll(io.LimitReader(reader, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, exit.Cause(err))
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("cannot read %s: it has more than %d bytes", name, maxFile)
	}
	var objects []Document
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var root yaml.Node
		err := decoder.Decode(&root)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, syntaxError(name, err)
		}
		if root.Content[0].Tag == "!!null" {
			continue
		}
		found, err := identify(name, root.Content[0])
		if err != nil {
			return nil, err
		}
		added, err := found.withItems()
		if err != nil {
			return nil, err
		}
		objects = append(objects, added...)
	}
}

// listSuffix is the suffix of every list kind: the plain List written by kubectl, and the API server's typed lists such
// as PodList.
const listSuffix = "List"

// withItems returns the objects in a list. If the document is not a list, it returns the document itself.
func (d *Document) withItems() ([]Document, error) {
	_, list := child(d.node, "items")
	if !strings.HasSuffix(d.Kind, listSuffix) || list == nil || list.Kind != yaml.SequenceNode {
		return []Document{*d}, nil
	}
	var items []Document
	for i, item := range list.Content {
		if item.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("%s: items[%d] is not an object", d.Location(), i)
		}
		found, err := identify(d.file, item)
		if err != nil {
			return nil, fmt.Errorf("items[%d] of a list: %w", i, err)
		}
		items = append(items, *found)
	}
	return items, nil
}

func identify(file string, node *yaml.Node) (*Document, error) {
	var header struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	found := &Document{file: file, node: node}
	var err error
	if found.Data, err = yaml.Marshal(node); err == nil {
		err = sigsyaml.Unmarshal(found.Data, &header)
	}
	if err != nil {
		if explained := found.explainDecodeError(err); errors.As(explained[0], &problem{}) {
			return nil, errors.Join(found.Located(explained)...)
		}
		return nil, fmt.Errorf("%s: not a Kubernetes object, which begins with apiVersion and kind", found.Location())
	}
	found.Kind, found.Name = header.Kind, header.Metadata.Name
	if header.Kind == "" || header.APIVersion == "" {
		return nil, fmt.Errorf("%s: the document has no apiVersion or no kind: a topology starts with \"apiVersion: "+
			"%s\" and \"kind: %s\"", found.Location(), v1alpha1.GroupVersion(), KindTopology)
	}
	return found, checkKind(found, header.APIVersion)
}

// lineOfSyntax matches the prefix of syntax errors from package yaml.
var lineOfSyntax = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

func syntaxError(file string, err error) error {
	if match := lineOfSyntax.FindStringSubmatch(err.Error()); match != nil {
		return fmt.Errorf("%s:%s: not YAML: %s", file, match[1], match[2])
	}
	return fmt.Errorf("%s: not YAML: %w", file, err)
}

// checkKind rejects unknown kinds in the driver's API group, because a misspelled kind would otherwise be silently
// skipped. Kinds in other groups are ignored.
func checkKind(found *Document, apiVersion string) error {
	group, _, _ := strings.Cut(apiVersion, "/")
	kinds := []string{KindTopology, KindSchema, KindPolicy, KindRange, KindBlock}
	if group != v1alpha1.GroupVersion().Group || slices.Contains(kinds, strings.TrimSuffix(found.Kind, listSuffix)) {
		return nil
	}
	return fmt.Errorf("%s: unknown kind %s in %s; use one of %s", found.Location(), found.Kind, group,
		strings.Join(kinds, ", "))
}

// Kinds in the driver's API group.
const (
	KindTopology = "NetworkTopology"
	KindSchema   = "CNIPluginSchema"
	KindRange    = "AddressRange"
	// KindBlock is the kind that the controller creates from address ranges. Objects of this kind are skipped.
	KindBlock = "AddressBlock"
)

// DecodeStrict decodes a document into object, or into a new object of its kind if object is nil. Unknown fields,
// duplicate fields and values of the wrong type are errors, because silently dropping a field would change the object's
// meaning. The result contains all such errors; [Document.At] returns their positions.
func DecodeStrict(
	found *Document, object runtime.Object, builders ...func(*runtime.Scheme) error,
) (decoded runtime.Object, problems []error) {
	scheme := runtime.NewScheme()
	for _, addToScheme := range builders {
		if err := addToScheme(scheme); err != nil {
			return nil, []error{err}
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	problems, err := found.decodeAll(func(document []byte) (err error) {
		decoded, _, err = decoder.Decode(document, nil, object)
		return err
	})
	if err == nil {
		return decoded, problems
	}
	rest := []error{err}
	if strict, isStrict := runtime.AsStrictDecodingError(err); isStrict {
		rest = strict.Errors()
	}
	for _, problem := range rest {
		problems = append(problems, found.explainDecodeError(problem)...)
	}
	return decoded, problems
}

// decodeServed decodes a document in the driver's group. It accepts every served version, because all versions have the
// same schema. It sets the object's version to the stored version, so that printed objects have the same version as
// objects created by netdra.
func decodeServed(
	found *Document, object runtime.Object, builders ...func(*runtime.Scheme) error,
) (runtime.Object, []error) {
	decoded, problems := DecodeStrict(found, object, builders...)
	if len(problems) > 0 {
		if runtime.IsNotRegisteredError(problems[0]) {
			var versions []string
			for _, served := range v1alpha1.ServedVersions() {
				versions = append(versions, served.String())
			}
			problems[0] = fmt.Errorf("netdra supports %s only with apiVersion %s", found.Kind,
				strings.Join(versions, " or "))
		}
		return decoded, problems
	}
	decoded.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(found.Kind))
	return decoded, nil
}

// decode decodes as much of a document as possible. The document's kind must be in the driver's group.
func decode[T runtime.Object](found *Document, kind string) (object T, problems []error) {
	decoded, problems := decodeServed(found, nil, v1alpha1.AddToScheme, v1beta1.AddToScheme)
	object, matches := decoded.(T)
	if len(problems) > 0 {
		return object, problems
	}
	if !matches {
		return object, []error{fmt.Errorf("this is a %s, want a %s", found.Kind, kind)}
	}
	return object, nil
}

// ChooseTopology returns the topology with the given name. If name is empty, the file must contain exactly one
// topology.
func ChooseTopology(file string, documents []Document, name string) (*Document, error) {
	var topologies, rest []string
	var found *Document
	for i := range documents {
		if documents[i].Kind != KindTopology {
			rest = append(rest, documents[i].Kind+" "+documents[i].Name)
			continue
		}
		topologies = append(topologies, documents[i].Name)
		if name == "" || documents[i].Name == name {
			found = &documents[i]
		}
	}
	switch {
	case len(topologies) == 0 && len(rest) == 0:
		return nil, fmt.Errorf("%s is empty: it must contain a %s", file, KindTopology)
	case len(topologies) == 0:
		return nil, fmt.Errorf("%s has no %s, only %s", file, KindTopology, strings.Join(rest, ", "))
	case name == "" && len(topologies) > 1:
		return nil, fmt.Errorf("%s has several topologies; choose one with --name: %s", file,
			strings.Join(topologies, ", "))
	case found == nil:
		return nil, fmt.Errorf("%s has no topology %q: it has %s", file, name, strings.Join(topologies, ", "))
	}
	return found, nil
}
