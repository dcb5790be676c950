package reference_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
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

What the selectors of policies and topologies may read of a device. Made of ~SOURCE~ by ~make generate~.

In CEL an attribute is ~device.attributes["DOMAIN"].ifName~, and one with a domain in its name below is
~device.attributes["resource.kubernetes.io"].pcieRoot~. "In policies" and "in topologies" say where it may be read:

- **yes**: as it is. In policies that goes for all of them.
  ABSENT
- **guarded**: a selector of a topology is evaluated by the scheduler on what is published, and not every device has this. Write
  ~device.attributes["DOMAIN"].?numaNode.orValue(-1)~, or ~has(…) &&~ before it.
- **no**: it is not published, since it changes too often or only the administrator needs it.

~device.driver~ is the DRA driver that publishes the device, always ~dra.networking~. The kernel's driver of a card is the attribute
~device.attributes["DOMAIN"].driver~.

Published entries have more, which topologies read with a guard: ~PLUGIN~ is true where the policy supports ~host-device~,
and so on (the DeviceClass of a step asks for its plugin by itself), and there are the attributes of the policy:
~additionalAttributes~, ~computedAttributes~ and ~attributesByPCIAddress~.
~SUPPORTED~ is for people.
`

// TestAttributes holds the page of attributes against the vocabulary. What they mean is said once, above
// policy.Attributes.
func TestAttributes(t *testing.T) {
	const source = "policy/attributes.go"
	blocks := documentation(t, "../../"+source, "Attributes")
	_, absent, found := strings.Cut(prose(blocks[0].(*comment.Paragraph)), "in that of the driver. ")
	if !found {
		t.Fatalf("%s does not say what absent attributes are", source)
	}
	var text bytes.Buffer
	text.WriteString(strings.NewReplacer("~", "`", "SOURCE", source, "DOMAIN", v1alpha1.AttributeDomain,
		"ABSENT", absent,
		"PLUGIN", v1alpha1.CNIDomain+"/"+
			v1alpha1.CNIAttribute("host-device"), "SUPPORTED", string(policy.SupportedCNIs)).Replace(introduction))
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
			text.WriteString("| name | type | it is | in policies | in topologies |\n|---|---|---|---|---|\n")
		case *comment.Code:
			for line := range strings.Lines(block.Text) {
				name, meaning, _ := strings.Cut(strings.TrimSpace(line), " ")
				full := qualified(name)
				described[full] = true
				if _, ok := all[full]; !ok {
					t.Errorf("%s describes %s, which is no attribute", source, name)
				}
				fmt.Fprintf(&text, "| `%s` | %s | %s | yes | %s |\n", name, kindOf(all[full]),
					strings.ReplaceAll(oneLine(meaning), "<", `\<`), inTopologies(full))
			}
		}
	}
	for name := range all {
		if !described[name] {
			t.Errorf("%s does not say what %s is", source, name)
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

// inTopologies reports whether a selector of a topology may read it, by asking for what it would be refused for.
func inTopologies(name resourceapi.QualifiedName) string {
	domain, bare, _ := strings.Cut(string(name), "/")
	if policy.CheckClassSelector(fmt.Sprintf(`device.attributes[%q].%s == device.attributes[%q].%s`, domain, bare,
		domain, bare)) == nil {
		return "yes"
	}
	// has all that is published sometimes
	whole := discovery.Device{Type: discovery.TypeBridge, PCIAddress: "0000:03:00.0", PCIeRoot: "pci0000:00",
		RDMADevices: []string{"mlx5_0"}}
	if _, published := policy.Published(whole)[name]; published {
		return "guarded"
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
