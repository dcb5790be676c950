package reference_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/docs/reference"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// introduction has ~ for the backquote.
const introduction = `# Attributes of devices

What selectors and constraints may read of a device. Made of ~SOURCE~ by ~make generate~.

In CEL an attribute is ~device.attributes["DOMAIN"].ifName~, and one with a domain in its name below is
~device.attributes["resource.kubernetes.io"].pcieRoot~.

**In policies** all of them can be read as they are, whatever is published. ABSENT

**Published** entries have facts only: what a device does not have is absent, so that no two devices are alike, for ~matchAttribute~ of a
claim, in what neither of them has, and none that lacks it is told from others by ~distinctAttribute~. The column "published" says:

- **always**: on every device.
- **if known**: on devices that have it.
- **on request**: on devices that have it, if the policy that exposes them names it in ~exposure.publish~.
- **no**: never, since it changes too often: each change would write slices.

**In topologies** those that are published always or if known can be read as they are, with the same values for what is absent as in policies:
the DeviceClass gets ~(has(…) ? … : "")~ around each ([ADR 24](../adr/0024-facts-only.md)). Others need a guard.

**In claims**, and in DeviceClasses that you write, guard whatever is not published always: to a scheduler, reading what a device lacks is an error
that ends the scheduling of the pod. Only devices of the claim's class count, so ~pfName~ of a class for virtual functions is there. A guard is
~device.attributes["DOMAIN"].?linkSpeed.orValue(0) >= 25000~, or ~has(…) &&~ before it.

~device.driver~ is the DRA driver that publishes the device, always ~dra.networking~. The kernel's driver of a card is the attribute
~device.attributes["DOMAIN"].driver~.

Published entries have more, which needs a guard everywhere: ~PLUGIN~ is true where the policy supports ~host-device~,
and so on (the DeviceClass of a step asks for its plugin by itself), and there are the attributes of the policy:
~additionalAttributes~, ~computedAttributes~ and ~attributesByPCIAddress~; ~resourceName~ adds ~k8s.cni.cncf.io/resourceName~ and
~k8s.cni.cncf.io/deviceID~, which Multus reads ([migrate.md](../migrate.md#allocated-here-attached-by-multus)).
~POLICY~ is the name of the policy, unless it has more than 64 bytes. A device with more attributes than Kubernetes takes lacks it, too.
~SUPPORTED~ is for people. With ~--list-attributes~ it is a list, for classes, and so is ~resource.kubernetes.io/numaNode~: the device's own node
first, then the others of its socket, and ~matchAttribute~ is satisfied by one that they share.
`

// TestAttributes generates the page of attributes from the only description, which is above policy.Attributes.
func TestAttributes(t *testing.T) {
	const source = "policy/attributes.go"
	blocks := documentation(t, "../../"+source, "Attributes")
	_, absent, found := strings.Cut(prose(blocks[0].(*comment.Paragraph)), "domain of the driver. ")
	if !found {
		t.Fatalf("%s does not define absent attributes", source)
	}
	var text bytes.Buffer
	text.WriteString(strings.NewReplacer("~", "`", "SOURCE", source, "DOMAIN", v1alpha1.AttributeDomain,
		"ABSENT", absent,
		"PLUGIN", v1alpha1.CNIDomain+"/"+
			v1alpha1.CNIAttribute("host-device"), "POLICY", string(policy.ExposurePolicy),
		"SUPPORTED", string(policy.SupportedCNIs)).Replace(introduction))
	all := policy.Attributes(discovery.Device{})
	described := map[resourceapi.QualifiedName]bool{}
	for _, block := range blocks[1:] {
		switch block := block.(type) {
		case *comment.Paragraph:
			title, more, _ := strings.Cut(strings.TrimSuffix(prose(block), ":"), "; ")
			text.WriteString("\n## " + title + "\n\n")
			if more != "" {
				text.WriteString(more + ".\n\n")
			}
			text.WriteString("| name | type | it is | published |\n|---|---|---|---|\n")
		case *comment.Code:
			for line := range strings.Lines(block.Text) {
				name, meaning, _ := strings.Cut(strings.TrimSpace(line), " ")
				full := qualified(name)
				described[full] = true
				if _, ok := all[full]; !ok {
					t.Errorf("%s describes %s, which is not an attribute", source, name)
				}
				fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", name, kindOf(all[full]),
					oneLine(meaning), publication(full))
			}
		}
	}
	for name := range all {
		if !described[name] {
			t.Errorf("%s does not describe %s", source, name)
		}
	}
	reference.Page(t, "attributes.md", text.Bytes())
}

func qualified(name string) resourceapi.QualifiedName {
	if !strings.Contains(name, "/") {
		name = v1alpha1.AttributeDomain + "/" + name
	}
	return resourceapi.QualifiedName(name)
}

func kindOf(attribute resourceapi.DeviceAttribute) string {
	switch {
	case attribute.BoolValue != nil:
		return "boolean"
	case attribute.IntValue != nil:
		return "integer"
	}
	return "string"
}

// publication says when an attribute is published.
func publication(name resourceapi.QualifiedName) string {
	switch {
	case slices.Contains(policy.AlwaysPublished(), name):
		return "always"
	case slices.Contains(policy.PublishedWhereFact(), name):
		return "if known"
	case slices.Contains(policy.PublishedOnRequest(), name):
		return "on request"
	}
	return "no"
}

// documentation is the comment of a function.
func documentation(t *testing.T, file, name string) []comment.Block {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, declaration := range parsed.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.Name.Name == name {
			return new(comment.Parser).Parse(function.Doc.Text()).Content
		}
	}
	t.Fatalf("%s has no %s", file, name)
	return nil
}

func prose(paragraph *comment.Paragraph) string {
	return oneLine(string(new(comment.Printer).Text(&comment.Doc{Content: []comment.Block{paragraph}})))
}
