package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const oneOfEach = `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: p}
spec: {selector: {cel: "true"}, exposure: {supportedCNIPlugins: [{name: macvlan, exclusive: true}]}}
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: t}
spec: {steps: [{name: a, type: macvlan, selector: {cel: "true"}, addressRange: r, config: {ipam: {type: host-local}}}]}
---
apiVersion: networking.dra.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: s}
spec: {cniType: mine, config: {properties: {x: {type: string}}}}
---
apiVersion: networking.dra.io/v1alpha1
kind: AddressRange
metadata: {name: r}
spec: {cidrs: [10.0.0.0/24]}
`

// readAll reads one object of every kind.
func readAll(t *testing.T, text string) (objects []any) {
	t.Helper()
	documents, err := Read("-", strings.NewReader(text))
	if err != nil || len(documents) != 4 {
		t.Fatalf("got %d documents, want 4; error = %v", len(documents), err)
	}
	policy, err := DecodePolicy(&documents[0])
	if err != nil {
		t.Error(err)
	}
	topology, problems := ReadTopology(&documents[1], cnichain.DefaultSchemas())
	schema, err := ReadSchema(&documents[2])
	if err != nil {
		t.Error(err)
	}
	addressRange, more := ReadRange(&documents[3])
	if problems = append(problems, more...); len(problems) > 0 {
		t.Error(problems)
	}
	return []any{policy, topology, schema, addressRange}
}

// TestEveryServedVersionIsRead: manifests in every served version are decoded into the same object, in the stored
// version.
func TestEveryServedVersionIsRead(t *testing.T) {
	stored := v1alpha1.GroupVersion().String()
	want := readAll(t, oneOfEach)
	for _, served := range v1alpha1.ServedVersions() {
		got := readAll(t, strings.ReplaceAll(oneOfEach, stored, served.String()))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is decoded differently (-%s +%s):\n%s", served, stored, served, diff)
		}
	}
}

// TestOtherVersionsAreRefused: future versions may have a different schema.
func TestOtherVersionsAreRefused(t *testing.T) {
	documents, err := Read("-", strings.NewReader(strings.ReplaceAll(oneOfEach, "v1alpha1", "v1")))
	if err != nil {
		t.Fatal(err)
	}
	const want = " only with apiVersion networking.dra.io/v1alpha1 or networking.dra.io/v1beta1"
	_, problem := DecodePolicy(&documents[0])
	_, topology := ReadTopology(&documents[1], cnichain.DefaultSchemas())
	_, schema := ReadSchema(&documents[2])
	_, addressRange := ReadRange(&documents[3])
	for i, text := range []string{problem.Error(), strings.Join(topology, "\n"), schema.Error(),
		strings.Join(addressRange, "\n")} {
		if !strings.Contains(text, "netdra supports "+documents[i].Kind+want) {
			t.Errorf("%s: got %q, want the supported versions", documents[i].Kind, text)
		}
	}
}
