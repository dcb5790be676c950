package importer

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files") //nolint:gochecknoglobals // a flag of go test

func options() Options {
	return Options{Namespace: "default", DevicePluginPrefix: "intel.com",
		Schemas: cnichain.DefaultSchemas()}
}

// translated imports a file in the same way as the command. Locations in the result contain only the file's base name.
func translated(t *testing.T, file string) *Result {
	t.Helper()
	documents, err := manifest.Read(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	result, err := Import(documents, options())
	if err != nil {
		t.Fatal(err)
	}
	for i := range result.Findings {
		result.Findings[i].Location = filepath.Base(result.Findings[i].Location)
	}
	return result
}

// For every input in the corpus, the objects and the report match the golden file, and the objects are valid.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/corpus/*.yaml")
	if err != nil || len(files) < 40 {
		t.Fatalf("got %d inputs, want at least 40; error = %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			result := translated(t, file)
			data, err := result.YAML()
			if err != nil {
				t.Fatal(err)
			}
			var golden bytes.Buffer
			result.Report(printer.New(&golden))
			golden.WriteString("===\n")
			golden.Write(data)
			compare(t, strings.TrimSuffix(file, ".yaml")+".golden", golden.Bytes())
			checkObjects(t, data)
		})
	}
}

func compare(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; -update writes it; got:\n%s", file, got)
	}
}

// checkObjects checks objects in the same way as the API server, the webhook and the controller. It decodes each object
// strictly, and checks that claims request classes of existing topologies.
func checkObjects(t *testing.T, data []byte) {
	t.Helper()
	documents, err := manifest.Read("-", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	classes, templates := map[string]class{}, map[string]bool{}
	schemas := cnichain.DefaultSchemas()
	for i := range documents {
		switch found := &documents[i]; found.Kind {
		case manifest.KindSchema:
			schema, err := manifest.ReadSchema(found)
			if err != nil {
				t.Fatal(err)
			}
			schemas = schemas.With(*schema)
		case manifest.KindPolicy:
			checkPolicy(t, found)
		case manifest.KindTopology:
			topology, problems := manifest.ReadTopology(found, schemas)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			for i := range topology.Spec.Steps {
				step := topology.Spec.Steps[i].Name
				classes[v1alpha1.ClassName(topology.Name, step)] = class{topology, step}
			}
		default:
			checkUser(t, found, classes, templates)
		}
	}
}

func checkPolicy(t *testing.T, found *manifest.Document) {
	t.Helper()
	p, err := manifest.DecodePolicy(found)
	if err != nil {
		t.Fatal(err)
	}
	problems, remarks := policy.Check(p)
	if mismatches := manifest.TypeMismatches([]policyapi.DeviceExposurePolicy{*p}); len(problems)+len(mismatches) > 0 {
		t.Errorf("policy %s: problems %v, type mismatches %v", p.Name, problems, mismatches)
	}
	if len(remarks) > 0 {
		t.Errorf("policy %s: unexpected remarks %v", p.Name, remarks)
	}
}

// class is the DeviceClass for a step.
type class struct {
	topology *v1alpha1.NetworkTopology
	step     string
}

// checkClaim checks a claim from a template in the same way as the driver.
func checkClaim(t *testing.T, template *resourceapi.ResourceClaimTemplate, classes map[string]class) {
	t.Helper()
	spec := claimspec.Spec{Claim: template.Name}
	for _, request := range template.Spec.Spec.Devices.Requests {
		found, isKnown := classes[request.Exactly.DeviceClassName]
		if !isKnown || spec.Topology != nil && spec.Topology != found.topology {
			t.Fatalf("template %s requests %s, which is unknown or belongs to another topology", template.Name,
				request.Exactly.DeviceClassName)
		}
		root := claimspec.Root{Step: found.step}
		for _, config := range template.Spec.Spec.Devices.Config {
			parameters, err := v1alpha1.DecodeClaimParameters(config.Opaque.Parameters.Raw)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(config.Requests, request.Name) {
				root.Parameters = append(root.Parameters, parameters)
			}
		}
		spec.Topology, spec.Roots = found.topology, append(spec.Roots, root)
	}
	if problems := spec.Check(); len(problems) > 0 {
		t.Errorf("the driver rejects claims of template %s: %v", template.Name, problems)
	}
}

func checkUser(t *testing.T, found *manifest.Document, classes map[string]class, templates map[string]bool) {
	t.Helper()
	if !slices.Contains([]string{"ResourceClaimTemplate", "Pod", "Deployment"}, found.Kind) {
		checkTemplates(t, found, classes, templates)
		return
	}
	object, problems := manifest.DecodeStrict(found, nil, corev1.AddToScheme, resourceapi.AddToScheme,
		appsv1.AddToScheme)
	if len(problems) > 0 {
		t.Fatal(found.Kind, problems)
	}
	var spec *corev1.PodSpec
	var namespace string
	switch o := object.(type) {
	case *resourceapi.ResourceClaimTemplate:
		checkClaim(t, o, classes)
		templates[o.Namespace+"/"+o.Name] = true
		return
	case *corev1.Pod:
		spec, namespace = &o.Spec, o.Namespace
	case *appsv1.Deployment:
		spec, namespace = &o.Spec.Template.Spec, o.Namespace
	default:
		t.Fatalf("unexpected object of kind %s", found.Kind)
	}
	for _, claim := range spec.ResourceClaims {
		if !templates[namespace+"/"+*claim.ResourceClaimTemplateName] {
			t.Errorf("%s refers to template %s, which was not created", found.Name, *claim.ResourceClaimTemplateName)
		}
		if !slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
			return slices.Contains(c.Resources.Claims, corev1.ResourceClaim{Name: claim.Name})
		}) {
			t.Errorf("no container of %s refers to the claim %s", found.Name, claim.Name)
		}
	}
}

// checkTemplates checks the pod templates in an object of an unknown kind in the same way as pods.
func checkTemplates(t *testing.T, found *manifest.Document, classes map[string]class, templates map[string]bool) {
	t.Helper()
	var values map[string]any
	if err := yaml.UnmarshalStrict(found.Data, &values); err != nil {
		t.Fatal(err)
	}
	namespace := cmp.Or(objectAt(values, "metadata")["namespace"], any("default")) // cluster-scoped kinds have none
	count := 0
	eachTemplate(values, func(_ string, pod map[string]any) {
		count++
		data, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": pod["spec"],
			"metadata": map[string]any{"name": "pod", "namespace": namespace}})
		if err != nil {
			t.Fatal(err)
		}
		documents, err := manifest.Read("-", bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		checkUser(t, &documents[0], classes, templates)
	})
	if count == 0 {
		t.Errorf("unexpected object of kind %s", found.Kind)
	}
}

// No field is lost: an unknown field is reported as a finding, wherever it is in the input.
func TestUnknownFieldsAreFound(t *testing.T) {
	files, _ := filepath.Glob("testdata/corpus/*.yaml")
	planted := 0
	for _, file := range files {
		documents, err := manifest.Read(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range documents {
			for _, path := range []string{"spec", "metadata"} {
				planted += plant(t, file, documents, i, path)
			}
		}
	}
	if planted < 60 {
		t.Errorf("only %d fields were planted, which is too few", planted)
	}
}

// plant adds a field to an object in one document, and imports all documents.
func plant(t *testing.T, file string, documents []manifest.Document, i int, path string) int {
	t.Helper()
	if _, isWorkload := podPaths()[documents[i].Kind]; isWorkload {
		return 0 // copied unchanged
	}
	line := "\n" + path + ":"
	text := string(documents[i].Data)
	start := strings.Index("\n"+text, line)
	isCopied := strings.Contains(text, "containers:") // an object with pod templates
	if start < 0 || isCopied || documents[i].Kind == kindConfigMap {
		return 0
	}
	changed := slices.Clone(documents)
	end := start + len(line) - 1
	switch rest := text[end:]; {
	case strings.HasPrefix(rest, " {"):
		changed[i].Data = []byte(text[:end] + " {planted: 1, " + rest[2:])
	default:
		changed[i].Data = []byte(text[:end] + "\n    planted: 1" + rest)
	}
	result, err := Import(changed, options())
	if err != nil {
		t.Fatalf("%s: Import failed: %v\n%s", file, err, changed[i].Data)
	}
	if !slices.ContainsFunc(result.Findings, func(f Finding) bool {
		return f.Field == path+".planted" && f.Action
	}) {
		// An object that an operator creates or ignores, or of a kind that is not translated, is skipped with a finding
		// of its own.
		if !slices.ContainsFunc(result.Findings, func(f Finding) bool {
			return strings.Contains(f.Reason, "was already read") || strings.Contains(f.Reason, "was skipped") ||
				strings.Contains(f.Reason, "kind are not translated")
		}) {
			t.Errorf("%s: a field of %s in %s is lost", file, documents[i].Kind, path)
		}
	}
	return 1
}

// NICs and indexes use the notation of the device plugin. Other values are rejected.
func TestCardsAndIndexes(t *testing.T) {
	for text, want := range map[string]string{
		"a":       `P == "a" || O == "a"`,
		"a#0":     `P == "a" && I in [0]`,
		"a#0-2,5": `P == "a" && ((I >= 0 && I <= 2) || I in [5])`,
		"a#":      "not an index",
		"a#2-1":   "not a range",
		"a#-1":    "not an index",
		"a#x-2":   "not an index",
		`q"#0`:    `P == "q\"" && I in [0]`,
	} {
		got, err := ofNICs([]string{text}, "pfName", "ifName", "vfIndex")
		got = strings.NewReplacer(attribute("pfName"), "P", attribute("ifName"), "O", attribute("vfIndex"), "I").
			Replace(got)
		if got != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}

// Hostile input neither crashes the program nor becomes part of an expression.
func FuzzImport(f *testing.F) {
	files, _ := filepath.Glob("testdata/corpus/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, err := manifest.Read("-", bytes.NewReader(data))
		if err != nil {
			t.Skip()
		}
		keeping := options()
		keeping.KeepResourceNames, keeping.KeepMultus = len(data)%3 == 0, len(data)%3 == 1
		result, err := Import(documents, keeping)
		if err != nil {
			t.Skip()
		}
		if err := problemOf(result); err != nil {
			t.Error(err)
		}
	})
}

// problemOf returns an error if any topology in the result is not valid.
func problemOf(result *Result) error {
	data, err := result.YAML()
	if err != nil {
		return err
	}
	documents, err := manifest.Read("-", bytes.NewReader(data))
	if err != nil {
		return err
	}
	schemas := cnichain.DefaultSchemas()
	for i := range documents {
		switch documents[i].Kind {
		case manifest.KindSchema:
			schema, err := manifest.ReadSchema(&documents[i])
			if err != nil {
				return err
			}
			schemas = schemas.With(*schema)
		case manifest.KindTopology:
			if _, problems := manifest.ReadTopology(&documents[i], schemas); len(problems) > 0 {
				return fmt.Errorf("%v in\n%s", problems, data)
			}
		}
	}
	return nil
}

// If resource names are kept, a pod stays unchanged if it still gets the same networks with the same interface names. A
// pod that sets additional parameters gets claims.
func TestResourceNamesAreKept(t *testing.T) {
	networks := networkOf("first", "example.com/first") + networkOf("second", "example.com/second") +
		networkOf("third", "example.com/shared") + networkOf("fourth", "example.com/shared")
	for name, test := range map[string]struct {
		annotation, containers string
		stays                  bool
	}{
		"one network": {"first", asking("{example.com/first: 1}"), true},
		"in the order of the scheduler": {"first, first, second",
			asking("{example.com/second: 1, example.com/first: 2}"), true},
		"of two containers": {"second, first", asking("{example.com/second: 1}") + asking("{example.com/first: '1'}"),
			true},
		"in another order":           {"second, first", asking("{example.com/second: 1, example.com/first: 1}"), false},
		"interface name":             {"first@fast0", asking("{example.com/first: 1}"), false},
		"more devices than networks": {"first", asking("{example.com/first: 2}"), false},
		"resource of two networks":   {"third", asking("{example.com/shared: 1}"), false},
		"network that is not there":  {"none", asking("{example.com/first: 1}"), true}, // reported as a finding
		"no number":                  {"first", asking("{example.com/first: many}"), false},
		"in an init container": {"first", "  initContainers:\n" + asking("{example.com/first: 1}") +
			"  containers:\n" + asking("{}"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.HasPrefix(test.containers, "  init") {
				test.containers = "  containers:\n" + test.containers
			}
			text := networks + fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: user, namespace: apps, annotations: {k8s.v1.cni.cncf.io/networks: %q}}
spec:
%s`, test.annotation, test.containers)
			documents, err := manifest.Read("-", strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			wanted := options()
			wanted.KeepResourceNames = true
			result, err := Import(documents, wanted)
			if err != nil {
				t.Fatal(err)
			}
			data, err := result.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if stays := !strings.Contains(string(data), "kind: Pod\n"); stays != test.stays {
				t.Errorf("the pod is unchanged: %t, want %t:\n%s", stays, test.stays, data)
			}
			if !strings.Contains(string(data), "extendedResourceName: example.com/first") ||
				strings.Contains(string(data), "extendedResourceName: example.com/shared") {
				t.Errorf("want the extended resource name example.com/first, without example.com/shared:\n%s", data)
			}
			checkObjects(t, data)
		})
	}
}

// If pods can choose their addresses in a network, the network's resource name is not kept, because pods that request
// the resource by name have no claim that could set addresses.
func TestResourceNamesAreNotKeptWithoutAddresses(t *testing.T) {
	wanted := options()
	wanted.KeepResourceNames = true
	static, _ := wanted.Schemas.Lookup("static")
	static.Capabilities = []v1alpha1.Capability{v1alpha1.CapabilityIPs}
	wanted.Schemas = wanted.Schemas.With(v1alpha1.CNIPluginSchema{Spec: static})
	for addresses, keeps := range map[string]bool{"": false, `, "addresses": [{"address": "192.0.2.1/24"}]`: true} {
		documents, err := manifest.Read("-", strings.NewReader(strings.Replace(networkOf("fast", "example.com/fast"),
			`"type": "sriov"`, `"type": "sriov", "capabilities": {"ips": true}, "ipam": {"type": "static"`+addresses+"}", 1)+`---
apiVersion: v1
kind: Pod
metadata: {name: user, namespace: apps, annotations: {k8s.v1.cni.cncf.io/networks: fast}}
spec:
  containers:
`+asking("{example.com/fast: 1}")))
		if err != nil {
			t.Fatal(err)
		}
		result, err := Import(documents, wanted)
		if err != nil {
			t.Fatal(err)
		}
		data, err := result.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if kept := strings.Contains(string(data), "extendedResourceName: example.com/fast"); kept != keeps {
			t.Errorf("addresses %q: the name was kept: %t, want %t:\n%s", addresses, kept, keeps, data)
		}
		if changed := strings.Contains(string(data), "resourceClaimTemplateName: fast"); changed == keeps {
			t.Errorf("addresses %q: the pod was given a claim: %t, want the opposite:\n%s", addresses, changed, data)
		}
		said := slices.ContainsFunc(result.Findings, func(f Finding) bool {
			return strings.Contains(f.Reason, "the network configures no addresses")
		})
		if said == keeps {
			t.Errorf("addresses %q: wrong findings about unconfigured addresses: %v", addresses, result.Findings)
		}
	}
}

func networkOf(name, resource string) string {
	return fmt.Sprintf(`---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %s, namespace: apps, annotations: {k8s.v1.cni.cncf.io/resourceName: %s}}
spec: {config: '{"cniVersion": "1.0.0", "type": "sriov"}'}
`, name, resource)
}

func asking(limits string) string {
	return "  - {name: main, image: none, resources: {limits: " + limits + "}}\n"
}

// With --keep-multus, the devices of a network that has a resource are reserved by a claim, and Multus continues to
// attach them.
func TestMultusIsKept(t *testing.T) {
	text := networkOf("fast", "intel.com/fast") + networkOf("files", "intel.com/files") +
		networkOf("unknown", "intel.com/unknown") + `---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: plain, namespace: apps}
spec: {config: '{"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "ipam": {"type": "dhcp"}}'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: sriovdp-config}
data:
  config.json: |
    {"resourceList": [{"resourceName": "fast", "selectors": {"pfNames": ["ens1f0"]}},
      {"resourceName": "files", "selectors": {"pfNames": ["ens1f1"], "isRdma": true}}]}
---
apiVersion: v1
kind: Pod
metadata:
  {name: user, namespace: apps, annotations: {k8s.v1.cni.cncf.io/networks: "fast@fast0, plain, files, unknown"}}
spec:
  containers:
` + asking("{intel.com/fast: 1, intel.com/files: 1}")
	documents, err := manifest.Read("-", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	wanted := options()
	wanted.KeepMultus = true
	result, err := Import(documents, wanted)
	if err != nil {
		t.Fatal(err)
	}
	for i := range result.Findings {
		result.Findings[i].Location = "stdin"
	}
	data, err := result.YAML()
	if err != nil {
		t.Fatal(err)
	}
	var golden bytes.Buffer
	result.Report(printer.New(&golden))
	golden.WriteString("===\n")
	golden.Write(data)
	compare(t, "testdata/keep-multus.golden", golden.Bytes())
	checkObjects(t, data)
}
