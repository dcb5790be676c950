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

// introduction is the beginning of the page, with ~ instead of backquotes.
const introduction = `# Device attributes

Attributes that selectors and constraints can read. ~make generate~ creates this page from ~SOURCE~.

In CEL, an attribute is ~device.attributes["DOMAIN"].ifName~. An attribute that is listed with a domain, for example pcieRoot, is
~device.attributes["resource.kubernetes.io"].pcieRoot~.

**In policies**, all attributes can be read without guards, whether they are published or not. ABSENT

**Published** entries contain only the attributes that a device has. An absent attribute is not an empty value: two devices that both lack it do not
satisfy ~matchAttribute~, and a device that lacks it does not satisfy ~distinctAttribute~. The column "published" has these values:

- **always**: on every device.
- **if known**: on devices that have the attribute.
- **on request**: on devices that have the attribute, if the policy that exposes them lists it in ~exposure.publish~.
- **no**: never, because it changes often and each change would write slices.

**In topologies**, attributes that are published always or if known can be read without guards, with the same values for absent ones as in
policies: the driver adds ~(has(…) ? … : "")~ to the DeviceClass ([ADR 24](../adr/0024-facts-only.md)). Other attributes need a guard.

**In claims** and in DeviceClasses that you write, guard every attribute that is not published always. If a scheduler reads an absent attribute, the
expression fails, and so does the scheduling of the pod. Only devices of the claim's class count, so ~pfName~ exists if the class selects virtual
functions. Guard an access with ~device.attributes["DOMAIN"].?linkSpeed.orValue(0) >= 25000~, or with ~has(…) &&~ before it.

~device.driver~ is the DRA driver that publishes the device, always ~dra.networking~. The kernel driver of a NIC is the attribute
~device.attributes["DOMAIN"].driver~.

Published entries have additional attributes, which always need a guard:

- ~PLUGIN~ is true if the policy supports ~host-device~, and similarly for other plugins. The DeviceClass of a step requires its plugin
  automatically.
- The attributes of the policy: ~additionalAttributes~, ~computedAttributes~ and ~attributesByPCIAddress~. ~resourceName~ adds
  ~k8s.cni.cncf.io/resourceName~ and ~k8s.cni.cncf.io/deviceID~, which Multus reads
  ([migrate.md](../migrate.md#allocated-here-attached-by-multus)).
- The attributes from [files on the node](../howto.md#read-attributes-from-files-on-the-node). Policies can also read
  them, with a guard.
- ~POLICY~ is the name of the policy. It is absent if the name has more than 64 bytes, or if the device already has the maximum number of
  attributes.
- ~SUPPORTED~ lists the plugins as text. With ~--list-attributes~ it is a list that classes can use, and so is ~resource.kubernetes.io/numaNode~: the
  device's own node, then the other nodes of its socket. ~matchAttribute~ is satisfied by a common node.
`

// TestAttributes generates the page about attributes from the comment on policy.Attributes.
func TestAttributes(t *testing.T) {
	const source = "policy/attributes.go"
	blocks := documentation(t, "../../"+source, "Attributes")
	_, absent, found := strings.Cut(prose(blocks[0].(*comment.Paragraph)), "domain of the driver. ")
	if !found {
		t.Fatalf("the documentation in %s does not say when attributes are absent", source)
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
			text.WriteString("| name | type | description | published |\n|---|---|---|---|\n")
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

// publication describes when an attribute is published.
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

// documentation returns a function's doc comment.
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
	t.Fatalf("%s does not contain a function %s", file, name)
	return nil
}

func prose(paragraph *comment.Paragraph) string {
	return oneLine(string(new(comment.Printer).Text(&comment.Doc{Content: []comment.Block{paragraph}})))
}
