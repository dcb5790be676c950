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

// Document is one YAML document of a file.
type Document struct {
	file string
	line int // of its first line, from 1
	Data []byte
	Kind string
	Name string
}

// Location returns FILE:LINE, which editors open.
func (d *Document) Location() string { return fmt.Sprintf("%s:%d", d.file, d.line) }

// maxFile bounds what is read, in bytes: an object in Kubernetes is smaller than 1.5 MiB.
const maxFile = 16 << 20

// Read reads the objects of a file, or of stdin for "-": its documents, and of lists, as "kubectl get -o yaml" writes
// them, the items. Otherwise it is as [ReadDocuments].
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

// ReadDocuments reads the documents of a file, or of stdin for "-". Those that hold only comments are left out. Input
// is bounded before it is parsed. Standard input can be read once: of two files named "-" the second is empty.
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

// split cuts a YAML stream at its "---" lines. Every part begins with as many empty lines as stand before it, so that
// parsers count lines as editors do. A "---" inside of a block of text is indented, as YAML wants it, and so does not
// count.
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

// identify reads kind and name of a document; it returns nil for an empty one.
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
		return nil, fmt.Errorf("%s: the document has no apiVersion or no kind: a topology begins with \"apiVersion: "+
			"%s\" and \"kind: %s\"",
			found.Location(), v1alpha1.GroupVersion(), KindTopology)
	}
	return found, checkKind(found, header.APIVersion)
}

// lineOfSyntax is what package yaml puts before an error of a line.
var lineOfSyntax = regexp.MustCompile(`^line (\d+): (.*)$`)

// identifyError says why a document cannot be read: it is not YAML, or what should be its kind or name is not.
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

// checkKind refuses kinds that the driver's group does not have. Those of other groups are for others. A misspelt kind
// would otherwise be skipped like a kind of others, and its author would wonder why nothing happens.
func checkKind(found *Document, apiVersion string) error {
	group, _, _ := strings.Cut(apiVersion, "/")
	kinds := []string{KindTopology, KindSchema, KindPolicy, KindRange, KindBlock}
	if group != v1alpha1.GroupVersion().Group || slices.Contains(kinds, strings.TrimSuffix(found.Kind, listSuffix)) {
		return nil
	}
	if near := nearest.Word(found.Kind, kinds); near != "" {
		return fmt.Errorf("%s: there is no kind %s in %s; did you mean %s?", found.Location(), found.Kind, group, near)
	}
	return fmt.Errorf("%s: there is no kind %s in %s; it has %s", found.Location(), found.Kind, group,
		strings.Join(kinds, ", "))
}

// blankLines counts the lines of a document before its first key: empty lines, comments, the separator.
func blankLines(part part) int {
	blank := 0
	for i, line := range slices.Collect(strings.Lines(part.text)) {
		text := strings.TrimSpace(line)
		if i+1 < part.line {
			continue // the lines of the documents before
		}
		if text != "" && !strings.HasPrefix(text, "#") {
			return blank
		}
		blank++
	}
	return blank
}

// Kinds of the driver's API group.
const (
	KindTopology = "NetworkTopology"
	KindSchema   = "CNIPluginSchema"
	KindRange    = "AddressRange"
	// KindBlock is the kind of what the controller makes of ranges; it is read over.
	KindBlock = "AddressBlock"
)

// DecodeStrict reads a document into an object, or into a new object of its kind if that is nil. A field that the type
// does not have, that stands twice, or whose value is of another type, is an error, and every such error is one of the
// result; [Document.At] says where it is. A field that is dropped without a word would change what the object means.
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

// decodeServed reads a document of the driver's group, in any version that is served: all have one shape. The object is
// of the stored version then, so that whatever is printed of it names that one, as the objects do that netdra makes.
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
			problems[0] = fmt.Errorf("netdra reads %s of apiVersion %s only", found.Kind, strings.Join(versions, " and "))
		}
		return decoded, problems
	}
	decoded.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(found.Kind))
	return decoded, nil
}

// decode reads a document of a kind of the driver's group. With problems the object is what could be read, if anything.
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

// ChooseTopology picks the topology of a name; without a name there must be only one.
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
		return nil, fmt.Errorf("%s is empty: it must have a %s", file, KindTopology)
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
