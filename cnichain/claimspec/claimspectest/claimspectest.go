// Package claimspectest contains invalid claims for tests, each with the expected message.
//
// Invariant: it contains only data. The tests for package claimspec, for "netdra simulate" and for the
// whole driver use the same claims, so that they detect a claim that is rejected in one place but not in another.
package claimspectest

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/deviceclasses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus/cases"
)

//go:embed cases.yaml
var files embed.FS //nolint:gochecknoglobals // that is how files are embedded

//go:embed objects.yaml
var objects string //nolint:gochecknoglobals // that is how files are embedded

// Case is a pod with claims that the driver rejects.
type Case struct {
	Name string `json:"name"`
	// Claims are the specifications of the pod's claims.
	Claims []json.RawMessage `json:"claims"`
	// HostNetwork is the value of the pod's hostNetwork field.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// WhenWritten is true if the claims are rejected when they are created, provided that the controller is running.
	WhenWritten bool `json:"whenWritten,omitempty"`
	// Wants are strings that the driver's message must contain.
	Wants []string `json:"wants"`
}

// Cases returns all cases.
func Cases(t testing.TB) []Case {
	t.Helper()
	return cases.Read(t, files, "cases.yaml", func(c Case) string { return c.Name })
}

// Topologies returns the NetworkTopologies that the cases use, as YAML documents. Their steps create macvlans on the
// two given links.
func Topologies(first, second string) string {
	return strings.NewReplacer("FIRST", first, "SECOND", second).Replace(objects)
}

// Classes returns handwritten DeviceClasses as YAML documents. They contain errors that generated classes cannot
// contain.
func Classes(first, second string) string {
	var documents []string
	for _, class := range ownClasses() {
		link := first
		if class.second {
			link = second
		}
		documents = append(documents, class.yaml(link))
	}
	return strings.Join(documents, "---\n")
}

// Templates returns the ResourceClaimTemplates for a case as YAML documents.
func (c Case) Templates() string {
	documents := make([]string, len(c.Claims))
	for i, name := range c.TemplateNames() {
		documents[i] = fmt.Sprintf(
			"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: %s}\nspec: {spec: %s}\n",
			name, c.Claims[i])
	}
	return strings.Join(documents, "---\n")
}

// TemplateNames returns the names of the templates, one for each of the pod's claims.
func (c Case) TemplateNames() []string {
	names := make([]string, len(c.Claims))
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", c.Name, i)
	}
	return names
}

// Pod returns the pod for a case as a YAML document.
func (c Case) Pod() string {
	claims := make([]string, len(c.Claims))
	for i, name := range c.TemplateNames() {
		claims[i] = fmt.Sprintf("{name: claim-%d, resourceClaimTemplateName: %s}", i, name)
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"+
		"spec: {hostNetwork: %t, containers: [{name: main, image: none}], resourceClaims: [%s]}\n",
		c.Name, c.HostNetwork, strings.Join(claims, ", "))
}

// Allocated returns the pod for a case, and its claims as they are after scheduling, with one device for each request.
func (c Case) Allocated(t testing.TB) ([]*resourceapi.ResourceClaim, *corev1.Pod) {
	t.Helper()
	classes := allClasses(t)
	claims := make([]*resourceapi.ResourceClaim, len(c.Claims))
	for i, name := range c.TemplateNames() {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if err := yaml.UnmarshalStrict(c.Claims[i], &claim.Spec); err != nil {
			t.Fatal(err)
		}
		claim.Status.Allocation = allocate(t, &claim.Spec, classes)
		claims[i] = claim
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: c.Name}}
	pod.Spec.HostNetwork = c.HostNetwork
	return claims, pod
}

// TopologiesByName returns the NetworkTopologies that the cases use, by name.
func TopologiesByName(t testing.TB) map[string]*v1alpha1.NetworkTopology {
	t.Helper()
	found := map[string]*v1alpha1.NetworkTopology{}
	for _, document := range strings.Split(Topologies("first", "second"), "---\n") {
		topology := &v1alpha1.NetworkTopology{}
		if err := yaml.UnmarshalStrict([]byte(document), topology); err != nil {
			t.Fatal(err)
		}
		found[topology.Name] = topology
	}
	return found
}

// allClasses returns the classes that the controller would generate for the topologies, and the handwritten ones.
func allClasses(t testing.TB) []resourceapi.DeviceClass {
	t.Helper()
	var all []resourceapi.DeviceClass
	for _, topology := range TopologiesByName(t) {
		all = append(all, deviceclasses.Of(topology, func(string) bool { return true }, false)...)
	}
	for _, document := range strings.Split(Classes("first", "second"), "---\n") {
		var class resourceapi.DeviceClass
		if err := yaml.UnmarshalStrict([]byte(document), &class); err != nil {
			t.Fatal(err)
		}
		all = append(all, class)
	}
	return all
}

// allocate returns the allocation that the scheduler would write into the claim's status if it allocated one device for
// every request. The results are in request order, and the configuration from classes precedes the claim's own
// (structured.Allocator).
func allocate(
	t testing.TB, spec *resourceapi.ResourceClaimSpec, classes []resourceapi.DeviceClass,
) *resourceapi.AllocationResult {
	t.Helper()
	allocation := &resourceapi.AllocationResult{}
	devices := &allocation.Devices
	for _, request := range spec.Devices.Requests {
		devices.Results = append(devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: request.Name, Driver: v1alpha1.DriverName, Pool: "node/first", Device: "first",
		})
		index := slices.IndexFunc(classes, func(class resourceapi.DeviceClass) bool {
			return class.Name == request.Exactly.DeviceClassName
		})
		if index < 0 {
			t.Fatalf("DeviceClass %s does not exist", request.Exactly.DeviceClassName)
		}
		for _, config := range classes[index].Spec.Config {
			devices.Config = append(devices.Config, resourceapi.DeviceAllocationConfiguration{
				Source: resourceapi.AllocationConfigSourceClass, Requests: []string{request.Name},
				DeviceConfiguration: config.DeviceConfiguration,
			})
		}
	}
	for _, config := range spec.Devices.Config {
		devices.Config = append(devices.Config, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClaim, Requests: config.Requests,
			DeviceConfiguration: config.DeviceConfiguration,
		})
	}
	return allocation
}

// OfOwnClasses replaces the generated classes in claims with handwritten classes for the same steps, so that the API
// server accepts the claims in all cases.
func OfOwnClasses(claims string) string {
	return strings.NewReplacer("bad-one-uplink", "bad-own", "bad-address-uplink", "bad-own-address").Replace(claims)
}

// ownClass is a DeviceClass written by an administrator.
type ownClass struct {
	name string
	// parameters are the parameters for the driver; empty if there are none.
	parameters string
	// second is true for a class that selects the second link.
	second bool
}

// ownClasses returns classes with parameters that the controller would never write. Any user with permission to write
// DeviceClasses can create them, so the driver must not trust them.
func ownClasses() []ownClass {
	return []ownClass{
		{name: "bad-bare"},
		{name: "bad-own", parameters: `{networkTopologyRef: {name: bad-one}, step: uplink}`},
		{name: "bad-own-address", parameters: `{networkTopologyRef: {name: bad-address}, step: uplink}`},
		{name: "bad-forged", parameters: `{networkTopologyRef: {name: bad-one}, step: uplink, config: {type: bridge}}`},
		{name: "bad-words", parameters: `{say: please}`},
		{name: "bad-topology", parameters: `{networkTopologyRef: {name: bad-vanished}, step: uplink}`},
		{name: "bad-step", parameters: `{networkTopologyRef: {name: bad-one}, step: downlink}`},
		{name: "bad-left", parameters: `{networkTopologyRef: {name: bad-two}, step: left}`},
		{name: "bad-right", parameters: `{networkTopologyRef: {name: bad-two}, step: right}`, second: true},
	}
}

// yaml returns the class as a manifest. The class selects a device by its link's name.
func (c ownClass) yaml(link string) string {
	config := ""
	if c.parameters != "" {
		config = fmt.Sprintf("\n  config: [{opaque: {driver: dra.networking, parameters: %s}}]", c.parameters)
	}
	return fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: %s}
spec:
  selectors:
  - cel:
      expression: 'device.driver == "dra.networking" && device.attributes["dra.networking"].ifName == "%s"'%s
`, c.name, link, config)
}
