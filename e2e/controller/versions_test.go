package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	topologycorpus "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1/corpus"
	policycorpus "github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus"
)

// plurals maps the kinds in the API group to the plural names of their resources.
func plurals() map[string]string {
	return map[string]string{"DeviceExposurePolicy": "deviceexposurepolicies", "NetworkTopology": "networktopologies",
		"CNIPluginSchema": "cnipluginschemas", "AddressRange": "addressranges", "AddressBlock": "addressblocks"}
}

// The parts of TestVersions run in order: first without a controller, because it could change the objects, and then
// with one.
func TestVersions(t *testing.T) {
	p := newPlane(t)
	var served []string
	for _, gv := range v1alpha1.ServedVersions() {
		served = append(served, gv.String())
	}
	for _, writer := range served {
		for _, reader := range served {
			if writer != reader {
				t.Run(filepath.Base(writer)+" is read as "+filepath.Base(reader),
					func(t *testing.T) { p.forTest(t).testExchange(writer, reader) })
			}
		}
	}
	t.Run("everything valid is read as it is written", func(t *testing.T) { p.forTest(t).testCorpora(served) })
	p.installWebhook()
	stop := p.startController(withWebhook(webhookAddress)...)
	bad := invalid(t)
	p.until("a topology that the definition takes is refused", func() error { return p.refused(bad[len(bad)-1]) })
	for _, version := range served {
		t.Run("everything invalid is refused in "+filepath.Base(version),
			func(t *testing.T) { p.forTest(t).testRefusals(version, bad) })
	}
	for i, version := range served {
		t.Run("the controller works for "+filepath.Base(version),
			func(t *testing.T) {
				p.forTest(t).testWork(version, fmt.Sprintf("work%d", i), fmt.Sprintf("10.6%d.0.0/24", i))
			})
	}
	stop()
}

// everyField returns objects that together set every field of their kinds.
func (p *plane) everyField() []*unstructured.Unstructured {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.clone, "deploy", "testdata", "every-field.yaml"))
	if err != nil {
		p.t.Fatal(err)
	}
	kinds := map[string]bool{}
	var objects []*unstructured.Unstructured
	for _, document := range strings.Split(string(text), "\n---\n") {
		data, err := yaml.YAMLToJSONStrict([]byte(document))
		object := &unstructured.Unstructured{}
		if err == nil {
			err = utiljson.Unmarshal(data, &object.Object)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		kinds[object.GetKind()] = true
		objects = append(objects, object)
	}
	if len(kinds) != len(plurals()) {
		p.t.Fatalf("found only objects of kinds %v, want all kinds", slices.Sorted(maps.Keys(kinds)))
	}
	return objects
}

// inVersion returns a copy of an object with another API version.
func inVersion(object *unstructured.Unstructured, version string) *unstructured.Unstructured {
	object = object.DeepCopy()
	object.SetAPIVersion(version)
	return object
}

func (p *plane) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// read returns the stored object that corresponds to the given object, in the given API version.
func (p *plane) read(object *unstructured.Unstructured, version string) *unstructured.Unstructured {
	p.t.Helper()
	found := &unstructured.Unstructured{}
	found.SetAPIVersion(version)
	found.SetKind(object.GetKind())
	p.must(p.api.Get(p.t.Context(), client.ObjectKeyFromObject(object), found))
	return found
}

// sameIn checks that a written object matches the stored object in the given API version, and returns the stored
// object.
func (p *plane) sameIn(written *unstructured.Unstructured, version string) *unstructured.Unstructured {
	p.t.Helper()
	found := p.read(written, version)
	for _, part := range []string{"spec", "status"} {
		if diff := cmp.Diff(written.Object[part], found.Object[part]); diff != "" {
			p.t.Errorf("%s of %s %s differs in %s (-written +read):\n%s", part, written.GetKind(), written.GetName(),
				version, diff)
		}
	}
	if found.GetAPIVersion() != version {
		p.t.Errorf("%s was returned as version %s, want %s", written.GetName(), found.GetAPIVersion(), version)
	}
	for key, value := range written.GetAnnotations() {
		if found.GetAnnotations()[key] != value {
			p.t.Errorf("%s has lost its annotation %s", written.GetName(), key)
		}
	}
	return found
}

// testExchange creates an object of each kind with all fields in one version, and updates it in another.
func (p *plane) testExchange(writer, reader string) {
	p.t.Helper()
	objects := p.everyField()
	for _, written := range objects {
		object := inVersion(written, writer)
		p.must(p.api.Create(p.t.Context(), object))
		if status, has := written.Object["status"]; has {
			object.Object["status"] = status
			p.must(p.api.Status().Update(p.t.Context(), object))
		}
		p.sameIn(written, writer)
		// A program that uses the other version can update the object without losing any field.
		found := p.sameIn(written, reader)
		found.SetLabels(map[string]string{"example.com/by": filepath.Base(reader)})
		p.must(p.api.Update(p.t.Context(), found))
		p.must(p.api.Status().Update(p.t.Context(), found))
		if found := p.sameIn(written, writer); found.GetLabels()["example.com/by"] != filepath.Base(reader) {
			p.t.Errorf("%s was updated in %s, but in %s it has the labels %v", written.GetName(), reader, writer,
				found.GetLabels())
		}
		p.applied(written, writer, reader)
	}
	p.tables(objects)
	if out := p.kubectl("", "get", resource("AddressBlock", reader), "--field-selector=spec.nodeName=node-1", "-o",
		"name"); strings.Count(out, "\n") != 1 {
		p.t.Errorf("blocks of node-1 in %s are %q, want exactly one", reader, out)
	}
	for _, written := range objects {
		p.must(p.api.Delete(p.t.Context(), inVersion(written, reader)))
	}
}

// applied makes two tools own parts of an object, each using its own API version. Then one of the tools switches to
// another version, and the API server must still attribute the fields to that tool.
func (p *plane) applied(written *unstructured.Unstructured, writer, reader string) {
	p.t.Helper()
	apply := func(version, manager string, annotations string) {
		p.kubectl(fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, annotations: {%s}}}", version,
			written.GetKind(), written.GetName(), annotations),
			"apply", "--server-side", "--field-manager="+manager, "-f", "-")
	}
	apply(writer, "first", "example.com/first: a, example.com/more: a")
	apply(reader, "second", "example.com/second: b")
	apply(reader, "first", "example.com/first: c")
	found := p.sameIn(written, writer)
	annotations := found.GetAnnotations()
	_, more := annotations["example.com/more"]
	if annotations["example.com/first"] != "c" || annotations["example.com/second"] != "b" || more {
		p.t.Errorf("%s %s has unexpected annotations %v", written.GetKind(), written.GetName(), annotations)
	}
}

// resource returns the name that kubectl uses for a kind in a given API version.
func resource(kind, version string) string {
	group, name, _ := strings.Cut(version, "/")
	return plurals()[kind] + "." + name + "." + group
}

// tables compares kubectl's output for each kind across all versions.
func (p *plane) tables(objects []*unstructured.Unstructured) {
	p.t.Helper()
	age := regexp.MustCompile(`(?m)\s+(\d+[smh])+$`)
	for kind := range plurals() {
		var first string
		for i, gv := range v1alpha1.ServedVersions() {
			table := age.ReplaceAllString(p.kubectl("", "get", resource(kind, gv.String()), "-o", "wide"), "")
			if i == 0 {
				first = table
			}
			if diff := cmp.Diff(first, table); diff != "" {
				p.t.Errorf("table of %s in %s differs from that of the first version:\n%s", kind, gv, diff)
			}
		}
		for _, object := range objects {
			if object.GetKind() == kind && !strings.Contains(first, object.GetName()) {
				p.t.Errorf("%s is missing from\n%s", object.GetName(), first)
			}
		}
	}
}

// testCorpora creates every valid object in the corpora in each version, and compares the stored objects.
func (p *plane) testCorpora(served []string) {
	p.t.Helper()
	var objects []map[string]any
	for _, c := range policycorpus.Valid(p.t) {
		objects = append(objects, c.Object(p.t))
	}
	for _, c := range topologycorpus.Valid(p.t) {
		objects = append(objects, c.Object(p.t))
	}
	for _, content := range objects {
		var first *unstructured.Unstructured
		for i, version := range served {
			object := inVersion(&unstructured.Unstructured{Object: content}, version)
			p.must(p.api.Create(p.t.Context(), object))
			if i == 0 {
				first = object
			}
			for _, reader := range served {
				p.sameIn(first, reader)
			}
			p.must(p.api.Delete(p.t.Context(), object))
		}
	}
	p.t.Logf("checked %d objects", len(objects))
}

// testRefusals writes every invalid object in the given version, both as a new object and as an update to a valid one.
func (p *plane) testRefusals(version string, bad []invalidCase) {
	p.t.Helper()
	for _, c := range bad {
		c.object = inVersion(&unstructured.Unstructured{Object: c.object}, version).Object
		if err := p.refused(c); err != nil {
			p.t.Error(err)
		}
	}
	valid := &unstructured.Unstructured{Object: topologycorpus.Valid(p.t)[0].Object(p.t)}
	valid.SetName("was-valid")
	p.must(p.api.Create(p.t.Context(), valid.DeepCopy()))
	c := bad[len(bad)-1] // this case is rejected only by the webhook
	spec, err := json.Marshal(c.object["spec"])
	p.must(err)
	patch := client.RawPatch(types.JSONPatchType,
		fmt.Appendf(nil, `[{"op": "replace", "path": "/spec", "value": %s}]`, spec))
	if err := p.api.Patch(p.t.Context(), inVersion(valid, version), patch); !apierrors.IsInvalid(err) {
		p.t.Errorf("a valid topology became invalid: %v", err)
	}
	p.must(p.api.Delete(p.t.Context(), inVersion(valid, version)))
	p.t.Logf("checked %d objects", len(bad))
}

const work = `
apiVersion: VERSION
kind: NetworkTopology
metadata: {name: NAME}
spec:
  steps:
  - {name: a, type: macvlan, selector: {cel: "true"}, addressRange: NAME, config: {ipam: {type: host-local}}}
---
apiVersion: VERSION
kind: DeviceExposurePolicy
metadata: {name: NAME}
spec: {selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}, exposure: {supportedCNIPlugins: [{name: macvlan, exclusive: true}]}}
---
apiVersion: VERSION
kind: CNIPluginSchema
metadata: {name: NAME}
spec: {cniType: NAME, config: {properties: {x: {type: string}}}}
---
apiVersion: VERSION
kind: AddressRange
metadata: {name: NAME}
spec: {cidrs: [CIDR], blockSize: 16}
`

// testWork checks everything that the controller does, with objects that are created and changed in the given version.
func (p *plane) testWork(version, name, cidr string) {
	p.t.Helper()
	p.node("node-" + name)
	p.kubectl(strings.NewReplacer("VERSION", version, "NAME", name, "CIDR", cidr).Replace(work), "apply", "-f", "-")
	for _, kind := range []string{"NetworkTopology", "DeviceExposurePolicy", "CNIPluginSchema"} {
		p.until(kind+" is accepted", func() error {
			out, err := p.try("", "get", resource(kind, version), name, "-o",
				`jsonpath={.status.conditions[?(@.type=="Accepted")].status}`)
			if err != nil || out != "True" {
				return fmt.Errorf("the condition Accepted is %q (%w)", out, err)
			}
			return nil
		})
	}
	p.until("the node has a block", func() error {
		out, err := p.try("", "get", resource("AddressBlock", version),
			"--field-selector=spec.nodeName=node-"+name, "-o", "jsonpath={.items[*].spec.addressRange}")
		if err != nil || !slices.Contains(strings.Fields(out), name) {
			return fmt.Errorf("the nodes of its blocks are %q (%w)", out, err)
		}
		return nil
	})
	p.hasClasses(version, name, name+"-a")
	p.kubectl("", "patch", resource("NetworkTopology", version), name, "--type=json", "-p",
		`[{"op": "add", "path": "/spec/steps/-", "value": {"name": "b", "type": "macvlan", "selector": {"cel": "true"}}}]`)
	p.hasClasses(version, name, name+"-a "+name+"-b")
}

// hasClasses waits until a topology's status lists its classes, and the classes exist.
func (p *plane) hasClasses(version, name, want string) {
	p.t.Helper()
	p.until("topology "+name+" has the classes "+want, func() error {
		out, err := p.try("", "get", resource("NetworkTopology", version), name, "-o",
			"jsonpath={.status.deviceClasses[*]}")
		if err != nil || out != want {
			return fmt.Errorf("the classes are %q (%w)", out, err)
		}
		return nil
	})
	p.kubectl("", append([]string{"get", "deviceclass"}, strings.Fields(want)...)...)
}
