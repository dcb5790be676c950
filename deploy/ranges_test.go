package deploy_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

const (
	rangeCRD = "crds/networking.dra.io_addressranges.yaml"
	blockCRD = "crds/networking.dra.io_addressblocks.yaml"

	rangeSpec = `{cidrs: [10.60.0.0/24, "fd00:60::/120"], blockSize: 16, exclude: [10.60.0.9, 10.60.0.16/28]}`
	blockSpec = `{addressRange: r, index: 1, nodeName: n1, nodeUID: u1, cidrs: [10.60.0.16/28], networks: [10.60.0.0/24]}`
)

// said returns the definition's error message for the update from before to after, or "" if the update is accepted.
func said(t *testing.T, d definition, before, after string) string {
	t.Helper()
	read := func(kind, spec string) map[string]any {
		return decode(t, []byte("apiVersion: networking.dra.io/v1alpha1\nkind: "+kind+
			"\nmetadata: {name: r}\nspec: "+spec))
	}
	old, object := read("AddressRange", before), read("AddressRange", after)
	if problems := d.admit(t, old); len(problems) > 0 {
		t.Fatalf("the original object is rejected: %v", problems)
	}
	problems := d.admit(t, object)
	broken, _ := d.rules.Validate(t.Context(), nil, d.structural, object, old, celconfig.RuntimeCELCostBudget)
	if problems = append(problems, broken...); len(problems) == 0 {
		return ""
	}
	return problems.ToAggregate().Error()
}

func TestDefinitionOfRanges(t *testing.T) {
	d := newDefinition(t, find[*apiextensionsv1.CustomResourceDefinition](t, rangeCRD))
	for after, want := range map[string]string{
		rangeSpec: "",
		`{cidrs: [10.60.0.0/20, "fd00:60::/64"], blockSize: 16, returnDelay: 90s}`: "",
		`{cidrs: [10.60.0.0/24, "fd00:60::/120"], blockSize: 32}`:                  "blockSize cannot change",
		`{cidrs: [10.60.0.0/24, "fd00:60::/120"], blockSize: 17}`:                  "Unsupported value",
		`{cidrs: [10.60.0.0/25, "fd00:60::/120"], blockSize: 16}`:                  "cidrs cannot change but for",
		`{cidrs: [10.61.0.0/24, "fd00:60::/120"], blockSize: 16}`:                  "cidrs cannot change but for",
		`{cidrs: [10.60.0.0/24], blockSize: 16}`:                                   "cidrs cannot change but for",
		`{cidrs: [10.60.0.1/24, "fd00:60::/120"], blockSize: 16}`:                  "each must be a network",
		`{cidrs: [ten, "fd00:60::/120"], blockSize: 16}`:                           "each must be a network",
		`{cidrs: [10.60.0.0/24, 10.70.0.0/24], blockSize: 16}`:                     "must be of different families",
		`{cidrs: [10.60.0.0/24, "fd00:60::/120"], blockSize: 16, exclude: [1.2.3.4/8]}`: "each must be an address or " +
			"a network",
		`{cidrs: [10.60.0.0/24, "fd00:60::/120"], blockSize: 16, returnDelay: 30s}`: "must be at least 1m",
	} {
		if got := said(t, d, rangeSpec, after); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", after, got, want)
		}
	}
}

func TestDefinitionOfBlocks(t *testing.T) {
	d := newDefinition(t, find[*apiextensionsv1.CustomResourceDefinition](t, blockCRD))
	for change, want := range map[string]string{
		"networks: [10.60.0.0/24]=networks: [10.60.0.0/20]": "",
		"nodeName: n1=nodeName: n2":                         "a block is never reassigned to another node",
		"nodeUID: u1=nodeUID: u2":                           "a block is never reassigned to another node",
		"10.60.0.16/28=10.60.0.32/28":                       "a block is never reassigned to another node",
		"index: 1=index: 2":                                 "a block is never reassigned to another node",
	} {
		before, after, _ := strings.Cut(change, "=")
		got := said(t, d, blockSpec, strings.Replace(blockSpec, before, after, 1))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", change, got, want)
		}
	}
}
