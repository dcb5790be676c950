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

// claimParameters documents the claim parameters, based on the Go type and its comments. These parameters are part of
// claims, so they are not described by any CRD.
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

// variable is a name that can be used inside {{ }} in a step's configuration.
type variable struct{ name, meaning string }

// variables returns all variables, for both objects and the steps of a topology. "up" is the name of a step.
func variables() []variable {
	return []variable{
		{"pod.name", "the pod's name"},
		{"pod.namespace", "its namespace"},
		{"pod.uid", "its UID"},
		{"claim.name", "the claim's name"},
		{"claim.namespace", "its namespace"},
		{"claim.uid", "its UID"},
		{"node.name", "the node's name"},
		{"device.ifName", "in a root step: this or any other published attribute of its device " +
			"([attributes](attributes.md))"},
		{"device.capacity.bandwidth", "in a root step: the amount of the counter `bandwidth`, or of another counter, that the " +
			"claim was allocated"},
		{"device.capacity.bandwidth.bits", "the bandwidth in bit/s instead of Mbit/s, as the plugin `bandwidth` takes it"},
		{"up.interfaceName", "the name of the interface of step `up` in the pod. This step must depend on `up`, directly or " +
			"indirectly"},
		{"up.mac", "the MAC address of that interface"},
		{"up.sandbox", "the network namespace of that interface, from the plugin's result"},
		{"up.interfaces", "the names of all interfaces in the step's result, as a list"},
		{"up.pciAddress", "the PCI address of the step's device"},
		{"up.capacity.bandwidth", "the amount of a counter that the claim was allocated from the device of root step `up`; " +
			"also with `.bits`"},
		{"up.ips[N].address", "address N of the step's result, starting at 0, with the prefix length"},
		{"up.ips[N].gateway", "the gateway of that address"},
	}
}

// templates writes the table of templates, and checks that topologies accept exactly these templates.
func templates(t *testing.T, text *bytes.Buffer) {
	t.Helper()
	text.WriteString("\n## Templates\n\nStrings in a step's `config` can contain these templates. If the whole string " +
		"is one template, it has the type of the value.\n\n| template | value |\n|---|---|\n")
	byRoot := map[string][]string{}
	for _, v := range variables() {
		fmt.Fprintf(text, "| `{{ %s }}` | %s |\n", v.name, v.meaning)
		if problem := refusal(t, strings.ReplaceAll(v.name, "[N]", "[0]")); problem != "" {
			t.Errorf("variable %s is rejected: %s", v.name, problem)
		}
		root, field, _ := strings.Cut(v.name, ".")
		byRoot[root] = append(byRoot[root], field)
	}
	delete(byRoot, "device") // it has every attribute
	for root, fields := range byRoot {
		_, known, _ := strings.Cut(refusal(t, root+".nonsense"), "use ")
		has := regexp.MustCompile(`[a-zA-Z]+(?:(?:\[N\])?\.[a-z]+)?`).FindAllString(strings.ReplaceAll(known, " or ", " "),
			-1)
		slices.Sort(has)
		slices.Sort(fields)
		if !slices.Equal(has, fields) {
			t.Errorf("%s is documented with fields %v, but has %v", root, fields, has)
		}
	}
}

// refusal returns the error for a topology that uses a template, or "" if the topology is valid.
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
