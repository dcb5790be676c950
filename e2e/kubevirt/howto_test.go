package main

import (
	"os"
	"strings"
	"testing"

	kubevirtapi "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The virtual machine manifest in docs/howto.md is valid according to KubeVirt's API.
func TestHowto(t *testing.T) {
	text, err := os.ReadFile("../../docs/howto.md")
	if err != nil {
		t.Fatal(err)
	}
	_, document, found := strings.Cut(string(text), "```yml\n")
	document, _, closed := strings.Cut(document, "```")
	if !found || !closed {
		t.Fatal("docs/howto.md contains no virtual machine")
	}
	machine := &kubevirtapi.VirtualMachineInstance{}
	if err := yaml.UnmarshalStrict([]byte(document), machine); err != nil {
		t.Fatal(err)
	}
	claim := machine.Spec.Networks[0].ResourceClaim
	if claim == nil || claim.ClaimName != machine.Spec.ResourceClaims[0].Name || claim.RequestName != "fn" {
		t.Errorf("the network of the virtual machine refers to %+v, want its claim and request fn", claim)
	}
}
