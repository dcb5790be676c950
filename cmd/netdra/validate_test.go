package main

import (
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
)

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		content   string
		arguments []string
		code      int
		want      string
	}{
		"fine": {
			content: linkThenTune + "---\n# a comment\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---" +
				twoRoots,
			want: `
✓ DIR/t.yaml:2: topology moved is valid; request deviceClassName moved-link in a claim
✓ DIR/t.yaml:22: topology pair is valid; request deviceClassName pair-a and pair-b in a claim
`,
		},
		"misspelt plugins": {
			content: strings.NewReplacer("host-device", "host-devise", "host-local",
				"host-lokal").Replace(linkThenTune),
			want: `
✓ DIR/t.yaml:2: topology moved is valid; request deviceClassName moved-link in a claim
! DIR/t.yaml:2: no schema for plugin host-devise, so its configuration is not checked
! DIR/t.yaml:2: no schema for plugin host-lokal, so its configuration is not checked
`,
		},
		"a plugin with a remark": {
			content: strings.ReplaceAll(linkThenTune, "host-local, subnet:", "whereabouts, range:"),
			want: `
✓ DIR/t.yaml:2: topology moved is valid; request deviceClassName moved-link in a claim
! DIR/t.yaml:2: plugin whereabouts: its own reconciler frees addresses of running pods, since it finds pods by an annotation of Multus only: do not run it with this driver (docs/howto.md)
`,
		},
		"a guarded attribute that only a policy could add": {
			content: strings.Replace(linkThenTune, `"true"`,
				`"device.attributes[\"dra.networking\"].?ifNmae.orValue(\"\") == \"x\""`, 1),
			want: `
✓ DIR/t.yaml:2: topology moved is valid; request deviceClassName moved-link in a claim
! DIR/t.yaml:2: selector of step link: no device has an attribute dra.networking/ifNmae unless a policy adds it: did you mean device.attributes["dra.networking"].ifName?
`,
		},
		"one of several": {
			content: linkThenTune + "---" + twoRoots, arguments: []string{"--name", "pair"},
			want: "✓ DIR/t.yaml:16: topology pair is valid; request deviceClassName pair-a and pair-b in a claim\n",
		},
		"every problem": {
			code: exit.Refused,
			content: strings.NewReplacer("dependOn: [link]", "dependOn: [lnik]", `"true"`,
				`"device.attributes[\"dra.networking\"].ifNam == \"x\""`,
				"name: moved", "name: Moved", "mtu: 1400", "type: x").Replace(linkThenTune),
			want: `
✗ DIR/t.yaml:4: metadata.name: Invalid value: "Moved": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
✗ DIR/t.yaml:13: spec.steps[1].dependOn[0]: Invalid value: "lnik": step tune: dependOn names step "lnik", which does not exist
✗ DIR/t.yaml:14: spec.steps[1].config.type: Forbidden: is set by the driver; set the step's type instead
✗ DIR/t.yaml:9: spec.steps[0].selector.cel: Invalid value: "device.attributes[\"dra.networking\"].ifNam == \"x\"": no device has an attribute dra.networking/ifNam: did you mean device.attributes["dra.networking"].ifName? If a policy adds it, write has(device.attributes["dra.networking"].ifNam) && before it
`,
		},
		"unknown and double fields": {
			code: exit.Refused, content: strings.Replace(linkThenTune, "    type: tuning",
				"    type: tuning\n    type: tuning\n    ifname: x", 1),
			want: `
✗ DIR/t.yaml:13: the field "type" is set twice
✗ DIR/t.yaml:14: unknown field "spec.steps[1].ifname"
`,
		},
		"another type": {code: exit.Refused, content: strings.Replace(linkThenTune, "[link]", "link", 1),
			want: "✗ DIR/t.yaml:13: spec.steps[1].dependOn: is a string, must be a list\n"},
		"a string for an object": {code: exit.Refused, content: strings.Replace(linkThenTune, `{cel: "true"}`, `"true"`,
			1), want: "✗ DIR/t.yaml:9: spec.steps[0].selector: is a string, must be an object\n"},
		"a number for a string": {code: exit.Refused, content: strings.Replace(linkThenTune, "[link]", "[link, 7]", 1),
			want: "✗ DIR/t.yaml:13: spec.steps[1].dependOn[1]: is a number, must be a string, in quotes\n"},
		"wrong types and a misspelt field": {code: exit.Refused, content: strings.NewReplacer("[link]", "[link, 7]",
			`{cel: "true"}`, `{cel: true}`, "config: {mtu: 1400}", "config: 3", "metadata: {", "metadata: {namo: x, ").
			Replace(linkThenTune), want: `
✗ DIR/t.yaml:9: spec.steps[0].selector.cel: is true or false, must be a string, in quotes
✗ DIR/t.yaml:13: spec.steps[1].dependOn[1]: is a number, must be a string, in quotes
✗ DIR/t.yaml:4: unknown field "metadata.namo"
`},
		"no object at all": {code: exit.Refused, content: "- a\n- b\n",
			want: "✗ DIR/t.yaml:1: not a Kubernetes object, which begins with apiVersion and kind\n"},
		"a list for a name": {code: exit.Refused, content: strings.Replace(linkThenTune, "name: moved", "name: [moved]",
			1), want: "✗ DIR/t.yaml:4: metadata.name: is a list, must be a string, in quotes\n"},
		"misspelt fields": {code: exit.Refused, content: strings.NewReplacer("dependOn", "dependsOn", "metadata: {",
			"metadata: {namo: x, ").Replace(linkThenTune), want: `
✗ DIR/t.yaml:4: unknown field "metadata.namo"
✗ DIR/t.yaml:13: unknown field "spec.steps[1].dependsOn"
`},
		"a misspelt field, and mistakes elsewhere, which are reported once the file is complete": {code: exit.Refused,
			content: strings.NewReplacer("    type: tuning", "    tpye: tuning", `"true"`, `"x"`, "name: moved",
				"name: Moved").Replace(linkThenTune),
			want: "✗ DIR/t.yaml:12: unknown field \"spec.steps[1].tpye\"\n"},
		"a range that the file does not have": {content: strings.NewReplacer(
			", subnet: 10.99.0.0/24", "",
			"    type: host-device", "    type: host-device\n    addressRange: r22").Replace(linkThenTune) +
			"---\napiVersion: networking.dra.io/v1beta1\nkind: AddressRange\n" +
			"metadata: {name: r2}\nspec: {cidrs: [10.0.0.0/24]}\n", want: `
✓ DIR/t.yaml:2: topology moved is valid; request deviceClassName moved-link in a claim
✓ DIR/t.yaml:17: range r2 is valid; use it in addressRange of a step
`},
		"another version": {code: exit.Refused, content: strings.Replace(linkThenTune, "v1alpha1", "v1", 1),
			want: "✗ DIR/t.yaml:2: netdra supports NetworkTopology only with apiVersion " +
				"networking.dra.io/v1alpha1 or networking.dra.io/v1beta1\n"},
		"in both versions": {content: strings.Replace(linkThenTune, "v1alpha1", "v1beta1", 1) +
			"---\napiVersion: networking.dra.io/v1beta1\nkind: AddressRange\n" +
			"metadata: {name: r}\nspec: {cidrs: [10.0.0.0/24]}\n" +
			strings.Replace("---\n"+linkThenTune, "name: moved", "name: again", 1),
			want: "✓ DIR/t.yaml:2: topology moved is valid; request deviceClassName moved-link in a claim\n" +
				"✓ DIR/t.yaml:16: range r is valid; use it in addressRange of a step\n" +
				"✓ DIR/t.yaml:22: topology again is valid; request deviceClassName again-link in a claim\n"},
		"misspelt in the other version": {code: exit.Refused,
			content: strings.NewReplacer("v1alpha1", "v1beta1", "dependOn", "dependsOn").Replace(linkThenTune),
			want:    "✗ DIR/t.yaml:13: unknown field \"spec.steps[1].dependsOn\"\n"},
		"no YAML": {code: exit.Refused, content: linkThenTune + "---\na: [\n",
			want: "✗ DIR/t.yaml:16: not YAML: did not find expected node content\n"},
		"no object": {code: exit.Refused, content: "\nspec: {}\n",
			want: "✗ DIR/t.yaml:2: the document has no apiVersion or no kind: a topology starts with \"apiVersion: " +
				"networking.dra.io/v1alpha1\" and \"kind: NetworkTopology\"\n"},
		"empty": {code: exit.Refused, content: "# nothing\n",
			want: "✗ DIR/t.yaml is empty: it must contain a NetworkTopology\n"},
		"another kind": {code: exit.Refused, content: "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n",
			want: "✗ DIR/t.yaml has no NetworkTopology, only Pod p\n"},
		"misspelt kind": {code: exit.Refused, content: linkThenTune +
			"---\napiVersion: networking.dra.io/v1alpha1\nkind: DeviceExposurePolcy\n", want: "✗ DIR/t.yaml:16: " +
			"unknown kind DeviceExposurePolcy in networking.dra.io; use one of NetworkTopology, " +
			"CNIPluginSchema, DeviceExposurePolicy, AddressRange, AddressBlock\n"},
		"no such kind": {code: exit.Refused, content: "apiVersion: networking.dra.io/v1alpha1\nkind: Plan\n",
			want: "✗ DIR/t.yaml:1: unknown kind Plan in networking.dra.io; use one of NetworkTopology, " +
				"CNIPluginSchema, DeviceExposurePolicy, AddressRange, AddressBlock\n"},
		"a range": {content: linkThenTune + "---\napiVersion: networking.dra.io/v1alpha1\nkind: AddressRange\n" +
			"metadata: {name: r}\nspec: {cidrs: [10.0.0.0/24]}\n",
			want: "✓ DIR/t.yaml:2: topology moved is valid; request deviceClassName moved-link in a claim\n" +
				"✓ DIR/t.yaml:16: range r is valid; use it in addressRange of a step\n"},
		"a range without room": {code: exit.Refused, content: linkThenTune +
			"---\napiVersion: networking.dra.io/v1alpha1\nkind: AddressRange\nmetadata: {name: r}\n" +
			"spec: {cidrs: [10.0.0.0/28]}\n",
			want: "✓ DIR/t.yaml:2: topology moved is valid; request deviceClassName moved-link in a claim\n" +
				"✗ DIR/t.yaml:19: spec.cidrs[0]: Invalid value: \"10.0.0.0/28\": has fewer addresses than a " +
				"block (64): enlarge it, or reduce blockSize\n"},
		"only a range": {content: "apiVersion: networking.dra.io/v1alpha1\nkind: AddressRange\n" +
			"metadata: {name: r}\nspec: {cidrs: [10.0.0.0/24]}\n",
			want: "✓ DIR/t.yaml:1: range r is valid; use it in addressRange of a step\n"},
		"only a range, and a name": {code: exit.Refused, arguments: []string{"--name", "r"},
			content: "apiVersion: networking.dra.io/v1alpha1\nkind: AddressRange\n" +
				"metadata: {name: r}\nspec: {cidrs: [10.0.0.0/24]}\n",
			want: "✗ DIR/t.yaml has no NetworkTopology, only AddressRange r\n"},
		"another name": {code: exit.Refused, content: linkThenTune, arguments: []string{"--name", "x"},
			want: "✗ DIR/t.yaml has no topology \"x\": it has moved\n"},
		"as JSON": {code: exit.Refused, arguments: []string{"-o", "json"}, content: linkThenTune + "---" +
			strings.Replace(twoRoots, "name: pair", "name: Pair", 1) + "---\napiVersion: networking.dra.io/v1alpha1\n" +
			"kind: AddressRange\nmetadata: {name: r}\nspec: {cidrs: [10.0.0.0/24]}\n",
			want: `[
  {
    "location": "DIR/t.yaml:2",
    "kind": "NetworkTopology",
    "name": "moved",
    "valid": true,
    "deviceClasses": [
      "moved-link"
    ]
  },
  {
    "location": "DIR/t.yaml:16",
    "kind": "NetworkTopology",
    "name": "Pair",
    "valid": false,
    "problems": [
      "DIR/t.yaml:18: metadata.name: Invalid value: \"Pair\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    ]
  },
  {
    "location": "DIR/t.yaml:29",
    "kind": "AddressRange",
    "name": "r",
    "valid": true
  }
]
`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			code, out, errs := f.run(t.Context(),
				append([]string{"validate", f.write("t.yaml", test.content)}, test.arguments...)...)
			f.expect(code, test.code, out+errs, test.want)
		})
	}
}

func TestValidateStdinAndMissingFiles(t *testing.T) {
	f := newFake(t)
	f.stdin = linkThenTune
	code, out, errs := f.run(t.Context(), "validate", "-", f.dir+"/nothing.yaml")
	f.expect(code, exit.Refused, out+errs, `
✓ stdin:2: topology moved is valid; request deviceClassName moved-link in a claim
✗ cannot read DIR/nothing.yaml: no such file or directory
`)
}

const mineSchema = `
apiVersion: networking.dra.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: mine}
spec: {cniType: mine, output: {interfaces: modifies}, input: {prevResult: required}}
`

// The schemas in a file apply to the topologies in the same file. Files written by import rely on this.
func TestSchemasInTheSameFile(t *testing.T) {
	const topology = "\n---\napiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopology\nmetadata: {name: t}\n" +
		"spec: {steps: [{name: a, type: mine, selector: {cel: 'true'}}]}\n"
	f := newFake(t)
	code, out, errs := f.run(t.Context(), "validate", f.write("t.yaml", mineSchema+topology))
	f.expect(code, exit.Refused, out+errs, `
✗ DIR/t.yaml:11: spec.steps[0].dependOn: Required value: mine works on an interface that another step made: name that step
`)
	code, out, errs = f.run(t.Context(), "validate", f.write("t.yaml", strings.Replace(mineSchema, "modifies", "modify",
		1)+topology))
	f.expect(code, exit.Refused, out+errs, `
✗ DIR/t.yaml:5: spec.output.interfaces: Unsupported value: "modify": supported values: "appends", "modifies", "passthrough", "none", "deviceFiles"
`)
}

func TestSchemas(t *testing.T) {
	for name, test := range map[string]struct {
		schemas string
		code    int
		want    string
	}{
		"used": {schemas: mineSchema, code: exit.Refused, want: `
✗ DIR/t.yaml:7: spec.steps[0].dependOn: Required value: mine works on an interface that another step made: name that step
`},
		"wrong words": {
			schemas: strings.NewReplacer("modifies", "modify", "required", "always", "cniType: mine, ",
				"deviceParameters: [{attribute: mac}], ").Replace(mineSchema), code: exit.Refused,
			want: `
netdra: DIR/s.yaml:5: spec.cniType: Invalid value: "": must be the bare file name of a CNI plugin, for example macvlan
DIR/s.yaml:5: spec.deviceParameters[0].parameter: Required value: name the key in the plugin's configuration
DIR/s.yaml:5: spec.deviceParameters[0].attribute: Unsupported value: "mac": supported values: "ifName", "pciAddress", "auxiliaryDevice"
DIR/s.yaml:5: spec.input.prevResult: Unsupported value: "always": supported values: "none", "optional", "required"
DIR/s.yaml:5: spec.output.interfaces: Unsupported value: "modify": supported values: "appends", "modifies", "passthrough", "none", "deviceFiles"
`,
		},
		"another kind": {schemas: linkThenTune, code: exit.Refused,
			want: "netdra: DIR/s.yaml:2: this is a NetworkTopology, want a CNIPluginSchema\n"},
		"none": {schemas: "\n", code: exit.Refused, want: "netdra: DIR/s.yaml is empty: it must contain objects of " +
			"kind CNIPluginSchema\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			topology := f.write("t.yaml", strings.Replace(linkThenTune, "host-device\n", "mine\n", 1))
			code, out, errs := f.run(t.Context(), "validate", topology, "--schemas", f.write("s.yaml", test.schemas))
			f.expect(code, test.code, out+errs, test.want)
		})
	}
}
