package reference_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// claimParameters writes what a claim may say, of the type and its comments: it is in claims, so no definition has it.
func claimParameters(t *testing.T, text *bytes.Buffer) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "../../cnichain/v1alpha1/claimparameters.go", nil,
		parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	about := ""
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GenDecl:
			if spec, ok := node.Specs[0].(*ast.TypeSpec); ok && spec.Name.Name == v1alpha1.ClaimParametersKind {
				about = strings.TrimSpace(node.Doc.Text())
			}
		case *ast.Field:
			if len(node.Names) == 1 {
				comments[node.Names[0].Name] = oneLine(node.Doc.Text())
			}
		}
		return true
	})
	fmt.Fprintf(text, "\n## %s\n\n%s\n\nIt is in a claim's `spec.devices.config[].opaque.parameters`, with the "+
		"driver `%s`, beside the requests that it is for. At least\none of these must be set: %v.\n",
		v1alpha1.ClaimParametersKind, about, v1alpha1.DriverName, v1alpha1.ClaimParameterNames())
	text.WriteString("\n| field | type | |\n|---|---|---|\n")
	fields := reflect.TypeFor[v1alpha1.ClaimParameters]()
	for i := range fields.NumField() {
		field := fields.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		kind := field.Type.Kind().String()
		if kind == "slice" {
			kind = "list of " + field.Type.Elem().Kind().String()
		}
		if comments[field.Name] == "" {
			t.Errorf("ClaimParameters.%s has no comment", field.Name)
		}
		fmt.Fprintf(text, "| `%s` | %s | %s |\n", name, kind, comments[field.Name])
	}
}

// variable is what {{ }} in a step's configuration may name.
type variable struct{ name, meaning string }

// variables are all of them, of objects and of the steps of a topology. "up" is a step.
func variables() []variable {
	return []variable{
		{"pod.name", "the pod's name"},
		{"pod.namespace", "its namespace"},
		{"pod.uid", "its UID"},
		{"claim.name", "the claim's name"},
		{"claim.namespace", "its namespace"},
		{"claim.uid", "its UID"},
		{"node.name", "the node's name"},
		{"device.ifName", "of a root step: this or any other attribute of its device that is published " +
			"([attributes](attributes.md))"},
		{"up.interfaceName", "of a step `up` that this one depends on, directly or not: the name of its interface in " +
			"the pod"},
		{"up.mac", "the MAC address of that"},
		{"up.sandbox", "the network namespace of that, as the plugin has returned it"},
		{"up.interfaces", "a list of the names of all interfaces in its result"},
		{"up.pciAddress", "the PCI address of its device"},
		{"up.ips[N].address", "the address number N of its result, from 0, with the prefix length"},
		{"up.ips[N].gateway", "the gateway of that address"},
	}
}

// templates writes what templates may name, and sees that just this is taken.
func templates(t *testing.T, text *bytes.Buffer) {
	t.Helper()
	text.WriteString("\n## Templates\n\nWhat strings in a step's `config` may have between `{{` and `}}`. A string " +
		"that is nothing else takes the type of what it names.\n\n| template | it is |\n|---|---|\n")
	byRoot := map[string][]string{}
	for _, v := range variables() {
		fmt.Fprintf(text, "| `{{ %s }}` | %s |\n", v.name, v.meaning)
		if problem := refusal(t, strings.ReplaceAll(v.name, "[N]", "[0]")); problem != "" {
			t.Errorf("%s is refused: %s", v.name, problem)
		}
		root, field, _ := strings.Cut(v.name, ".")
		byRoot[root] = append(byRoot[root], field)
	}
	delete(byRoot, "device") // has every attribute
	for root, fields := range byRoot {
		_, known, _ := strings.Cut(refusal(t, root+".nonsense"), "use ")
		has := regexp.MustCompile(`[a-zA-Z]+(?:\[N\]\.[a-z]+)?`).FindAllString(strings.ReplaceAll(known, " or ", " "),
			-1)
		slices.Sort(has)
		slices.Sort(fields)
		if !slices.Equal(has, fields) {
			t.Errorf("%s is described with %v, and has %v", root, fields, has)
		}
	}
}

// refusal is what a topology with a template is refused with, if it is.
func refusal(t *testing.T, name string) string {
	t.Helper()
	config, err := json.Marshal(map[string]string{"any": "{{ " + name + " }}"})
	if err != nil {
		t.Fatal(err)
	}
	root := v1alpha1.Step{Name: "up", Type: "unheard-of", Selector: &v1alpha1.StepSelector{CEL: "true"}}
	later := v1alpha1.Step{Name: "later", Type: "unheard-of", DependOn: []string{"up"}}
	step := &root
	if strings.HasPrefix(name, "up.") {
		step = &later
	}
	step.Config = &runtime.RawExtension{Raw: config}
	topology := &v1alpha1.NetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "t"},
		Spec: v1alpha1.NetworkTopologySpec{Steps: []v1alpha1.Step{root, later}}}
	problems := cnichain.Validate(topology, cnichain.DefaultSchemas())
	if len(problems) == 0 {
		return ""
	}
	return problems[0].Detail
}
