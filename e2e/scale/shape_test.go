package scale

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// shape describes the devices on a node.
type shape struct {
	nics int
	// functions is the number of virtual functions per NIC.
	functions int
	// policies are the names of the node's policies in [policyTexts].
	policies []string
	// plugin is the CNI plugin used by pods.
	plugin string
}

// shapeOf returns the shape with the given name and number of devices. In the shapes functions and mixed-functions, the
// devices are four NICs (eight if there are 512 devices or more) and their virtual functions. In the shapes links and
// mixed-links, they are separate links. Each NIC or separate link has one entry that pods share. In the mixed shapes,
// it also has an exclusive entry, and the two entries exclude each other.
func shapeOf(name string, devices int) (shape, error) {
	nics := 4
	if devices >= 512 {
		nics = 8
	}
	whole := []string{"shared", "whole"}
	switch name {
	case "functions", "mixed-functions":
		if devices%nics != 0 || devices < 2*nics {
			return shape{}, fmt.Errorf("%d devices cannot be divided evenly among %d NICs",
				devices, nics)
		}
		s := shape{nics: nics, functions: devices/nics - 1, policies: []string{"shared", "function"},
			plugin: "sriov"}
		if name == "mixed-functions" {
			s.policies = append(whole, "function")
		}
		return s, nil
	case "links":
		return shape{nics: devices, policies: []string{"shared"}, plugin: "macvlan"}, nil
	case "mixed-links":
		return shape{nics: devices, policies: whole, plugin: "macvlan"}, nil
	}
	return shape{}, fmt.Errorf("unknown shape %q: use functions, mixed-functions, links or mixed-links",
		name)
}

// entries returns the number of devices that a node publishes.
func (s shape) entries() int {
	count := s.nics * s.functions
	for _, p := range s.policies {
		if p != "function" {
			count += s.nics
		}
	}
	return count
}

// record writes a recording of the machine in netdra's format.
func (s shape) record(t *testing.T) string {
	t.Helper()
	h := discoverytest.NewHost()
	for i := range s.nics {
		bus := fmt.Sprintf("%04x:%02x", i/200, 1+i%200)
		name, address := fmt.Sprintf("nic%d", i), bus+":00.0"
		h.Function(address)
		h.NIC(name, address)
		var addresses []string
		for j := range s.functions {
			addresses = append(addresses, fmt.Sprintf("%s:%02x.%d", bus, 1+j/8, j%8))
		}
		if s.functions > 0 {
			h.VirtualFunctions(address, addresses...)
		}
		for j, a := range addresses {
			h.NIC(fmt.Sprintf("%sv%d", name, j), a)
		}
	}
	dir := t.TempDir()
	if err := h.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// policyTexts contains the policies for all shapes. They have an attribute that changes with the revision.
var policyTexts = map[string]string{
	"shared": `
selector: {cel: 'device.attributes["dra.networking"].type in ["pf", "nic"]'}
action: expose
exposure:
  deviceNameSuffix: -shared
  allowMultipleAllocations: true
  capacity: {shares: {value: "8", requestPolicy: {default: "1"}}}
  supportedCNIPlugins: [{name: macvlan}]
  additionalAttributes: {revision: %d}
`,
	"whole": `
selector: {cel: 'device.attributes["dra.networking"].type in ["pf", "nic"]'}
action: expose
exposure:
  deviceNameSuffix: -whole
  supportedCNIPlugins: [{name: host-device, exclusive: true}]
  additionalAttributes: {revision: %d}
`,
	"function": `
selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
action: expose
exposure:
  supportedCNIPlugins: [{name: sriov, exclusive: true}]
  additionalAttributes: {revision: %d}
`,
}

// objects returns YAML with the policies and the class that pods request. The revision is an attribute only in the last
// policy, under which there are devices in every slice: if two policies changed, a driver could detect one change
// before the other and write its slices twice.
func (s shape) objects(revision int) string {
	documents := []string{fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: scale}
spec:
  selectors:
  - cel:
      expression: >-
        device.driver == "dra.networking" && device.attributes["cni.dra.networking"].?%s.orValue(false)
`, s.plugin)}
	for i, name := range s.policies {
		given := 1
		if i == len(s.policies)-1 {
			given = revision
		}
		spec := strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf(policyTexts[name], given)), "\n", "\n  ")
		documents = append(documents, fmt.Sprintf(
			"\napiVersion: networking.dra.io/v1alpha1\nkind: DeviceExposurePolicy\nmetadata: {name: %s}\nspec:\n  %s\n",
			name, spec))
	}
	return strings.Join(documents, "---")
}

// pluginFiles returns a directory with an empty file for each CNI plugin in the shapes, so that the driver finds the
// plugins.
func pluginFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"host-device", "macvlan", "sriov"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
