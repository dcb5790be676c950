package manifest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/cnichain/v1beta1"
	"github.com/dra-networking/dra-network-driver/policy/nearest"
)

// Document is one YAML document from a file.
type Document struct {
	file string
	line int // of its first line, from 1
	Data []byte
	Kind string
	Name string
}

// Location returns FILE:LINE, in the form that editors open.
func (d *Document) Location() string { return fmt.Sprintf("%s:%d", d.file, d.line) }

// maxFile is the maximum size of a file in bytes. A Kubernetes object is smaller than 1.5 MiB.
const maxFile = 16 << 20

// Read reads the objects from a file, or from stdin if path is "-": the documents, and the items in lists as written by
// "kubectl get -o yaml". It is otherwise like [ReadDocuments].
func Read(path string, stdin io.Reader) ([]Document, error) {
	documents, err := ReadDocuments(path, stdin)
	if err != nil {
		return nil, err
	}
	var objects []Document
	for i := range documents {
		items, isList, err := documents[i].items()
		if err != nil {
			return nil, err
		}
		if !isList {
			items = documents[i : i+1]
		}
		objects = append(objects, items...)
	}
	return objects, nil
}

// ReadDocuments reads the documents from a file, or from stdin if path is "-". It skips documents that contain only
// comments. The size of the input is limited before it is parsed. Standard input can be read only once: if "-" is given
// twice, the second input is empty.
func ReadDocuments(path string, stdin io.Reader) ([]Document, error) {
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
	var documents []Document
	for _, part := range split(string(data)) {
		found, err := identify(name, part)
		if err != nil {
			return nil, err
		}
		if found != nil {
			documents = append(documents, *found)
		}
	}
	return documents, nil
}

type part struct {
	line int
	text string
}

// split splits a YAML stream at its "---" lines. Every part starts with an empty line for each line before it, so that
// parsers report the line numbers of the file. A "---" inside a block of text is indented in valid YAML, so it is not a
// separator.
func split(stream string) []part {
	var parts []part
	var text strings.Builder
	line, begin := 0, 1
	for content := range strings.Lines(stream) {
		line++
		word, rest, _ := strings.Cut(strings.TrimRight(content, "\r\n"), " ")
		if word != "---" {
			text.WriteString(content)
			continue
		}
		parts = append(parts, part{line: begin, text: text.String()})
		text.Reset()
		text.WriteString(strings.Repeat("\n", line-1) + rest + "\n")
		begin = line
	}
	return append(parts, part{line: begin, text: text.String()})
}

// identify reads the kind and name of a document; it returns nil for an empty document.
func identify(file string, part part) (*Document, error) {
	var header struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	found := &Document{file: file, line: part.line + blankLines(part), Data: []byte(part.text)}
	var content any
	err := yaml.Unmarshal([]byte(part.text), &content)
	if err == nil && content == nil {
		return nil, nil
	}
	if err == nil {
		err = yaml.Unmarshal([]byte(part.text), &header)
	}
	if err != nil {
		return nil, identifyError(found, err)
	}
	found.Kind, found.Name = header.Kind, header.Metadata.Name
	if header.Kind == "" || header.APIVersion == "" {
		return nil, fmt.Errorf("%s: the document has no apiVersion or no kind: a topology starts with \"apiVersion: "+
			"%s\" and \"kind: %s\"",
			found.Location(), v1alpha1.GroupVersion(), KindTopology)
	}
	return found, checkKind(found, header.APIVersion)
}

// lineOfSyntax matches the prefix that package yaml adds to syntax errors.
var lineOfSyntax = regexp.MustCompile(`^line (\d+): (.*)$`)

// identifyError explains why a document cannot be identified: it is not YAML, or its kind or name has the wrong type.
func identifyError(found *Document, err error) error {
	if _, syntax, isSyntax := strings.Cut(err.Error(), "yaml: "); isSyntax {
		if match := lineOfSyntax.FindStringSubmatch(syntax); match != nil {
			return fmt.Errorf("%s:%s: not YAML: %s", found.file, match[1], match[2])
		}
		return fmt.Errorf("%s: not YAML: %s", found.Location(), syntax)
	}
	if explained := explainDecodeError(err, found.Data, nil); errors.As(explained[0], &problem{}) {
		return errors.Join(found.Located(explained)...)
	}
	return fmt.Errorf("%s: not a Kubernetes object, which begins with apiVersion and kind", found.Location())
}

// checkKind rejects unknown kinds in the driver's group. Kinds in other groups are ignored. Without this check, a
// misspelt kind would be silently skipped.
func checkKind(found *Document, apiVersion string) error {
	group, _, _ := strings.Cut(apiVersion, "/")
	kinds := []string{KindTopology, KindSchema, KindPolicy, KindRange, KindBlock}
	if group != v1alpha1.GroupVersion().Group || slices.Contains(kinds, strings.TrimSuffix(found.Kind, listSuffix)) {
		return nil
	}
	if near := nearest.Word(found.Kind, kinds); near != "" {
		return fmt.Errorf("%s: unknown kind %s in %s; did you mean %s?", found.Location(), found.Kind, group, near)
	}
	return fmt.Errorf("%s: unknown kind %s in %s; use one of %s", found.Location(), found.Kind, group,
		strings.Join(kinds, ", "))
}

// blankLines counts the lines in a document before its first key: empty lines, comments and the separator.
func blankLines(part part) int {
	blank := 0
	for i, line := range slices.Collect(strings.Lines(part.text)) {
		text := strings.TrimSpace(line)
		if i+1 < part.line {
			continue // lines of previous documents
		}
		if text != "" && !strings.HasPrefix(text, "#") {
			return blank
		}
		blank++
	}
	return blank
}

// Kinds in the driver's API group.
const (
	KindTopology = "NetworkTopology"
	KindSchema   = "CNIPluginSchema"
	KindRange    = "AddressRange"
	// KindBlock is the kind that the controller creates from ranges; it is skipped.
	KindBlock = "AddressBlock"
)

// DecodeStrict decodes a document into object, or into a new object of its kind if object is nil. A field that is
// unknown or duplicate, or has a value of the wrong type, is an error, because silently dropping a field would change
// the meaning of the object. The result contains all such errors; [Document.At] returns their positions.
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
	problems, err := decodeAll(found.Data, func(document []byte) (err error) {
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
		problems = append(problems, explainDecodeError(problem, found.Data, reflect.TypeOf(decoded))...)
	}
	return decoded, problems
}

// decodeServed decodes a document in the driver's group in any served version; all versions have the same schema. It
// sets the stored version, so that printed objects have the same version as objects that netdra creates.
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

// decode decodes a document whose kind is in the driver's group. If there are problems, it returns the object as far as
// it could be decoded.
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

// ChooseTopology returns the topology with a name. If the name is empty, there must be exactly one topology.
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
