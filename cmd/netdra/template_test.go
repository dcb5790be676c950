package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/policy"
)

// templatePolicies use every attribute that can differ between machines of the same kind.
const templatePolicies = `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: all}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type in ["pf", "vf", "nic"]'}
  exposure:
    supportedCNIPlugins: [{name: host-device, exclusive: true}]
    publish: [altNames, switchID, vfMAC, totalVFs]
`

// recordedMachine writes a recording of a machine with a NIC that has two virtual functions. number makes the NIC's
// addresses unique.
func recordedMachine(t *testing.T, name string, number string, change func(*discoverytest.Host)) string {
	t.Helper()
	h := discoverytest.NewHost()
	h.Function("0000:03:00.0")
	h.NIC("eth0", "0000:03:00.0")
	h.VirtualFunctions("0000:03:00.0", "0000:03:00.2", "0000:03:00.3")
	h.NIC("eth0v0", "0000:03:00.2")
	link := h.Link("eth0")
	link.MAC, link.AltNames = "02:00:00:00:00:"+number, []string{"enx0200000000" + number}
	h.Link("eth0v0").MAC = "02:00:00:00:01:" + number
	change(h)
	dir := filepath.Join(t.TempDir(), name)
	if err := h.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// templateOf returns the template of a recorded machine.
func templateOf(t *testing.T, recording string, arguments ...string) string {
	t.Helper()
	code, stdout, stderr := runSlices(t, templatePolicies,
		append([]string{"-f", "-", "--from", recording, "--template"}, arguments...)...)
	if code != exit.OK {
		t.Fatalf("exit status %d:\n%s", code, stderr)
	}
	return stdout
}

// Machines of the same kind have the same template. Their slices differ from the template only in names and in the
// attributes that the output lists. A machine with a different MTU has a different template.
func TestTemplateIsThatOfTheKind(t *testing.T) {
	same := func(*discoverytest.Host) {}
	first, second := recordedMachine(t, "worker-1", "01", same), recordedMachine(t, "worker-2", "02", same)
	template := templateOf(t, first)
	if diff := cmp.Diff(template, templateOf(t, second)); diff != "" {
		t.Errorf("templates of two identical machines differ:\n%s", diff)
	}
	faster := recordedMachine(t, "worker-3", "01", func(h *discoverytest.Host) { h.Link("eth0").MTU = 9000 })
	if templateOf(t, faster) == template {
		t.Error("a machine with a different MTU has the same template")
	}
	if text := templateOf(t, first, "-o", "text"); !strings.Contains(text, "NODE/eth0") ||
		strings.Contains(text, "worker-1") {
		t.Errorf("wrong template as text:\n%s", text)
	}
	for _, recording := range []string{first, second} {
		_, stdout, _ := runSlices(t, templatePolicies, "-f", "-", "--from", recording)
		name := filepath.Base(recording)
		read := decodeSlices(t, strings.ReplaceAll(stdout, name, "NODE"))
		removed := map[resourceapi.QualifiedName]bool{}
		for i := range read {
			for _, device := range read[i].Spec.Devices {
				for _, attribute := range policy.Identifying() {
					if _, has := device.Attributes[attribute]; has {
						removed[attribute] = true
						delete(device.Attributes, attribute)
					}
				}
			}
		}
		if diff := cmp.Diff(decodeSlices(t, template), read); diff != "" {
			t.Errorf("slices of %s differ from the template (-template +node):\n%s", name, diff)
		}
		if len(removed) < 2 {
			t.Errorf("the recording contains only %v of the differing attributes", removed)
		}
	}
}

// decodeSlices parses the output of "netdra slices".
func decodeSlices(t *testing.T, text string) []resourceapi.ResourceSlice {
	t.Helper()
	var read []resourceapi.ResourceSlice
	for _, document := range strings.Split(text, "---\n")[1:] {
		var slice resourceapi.ResourceSlice
		if err := yaml.UnmarshalStrict([]byte(document), &slice); err != nil {
			t.Fatal(err)
		}
		read = append(read, slice)
	}
	return read
}

func TestTemplateRefuses(t *testing.T) {
	file, dir := policyFile(t, templatePolicies), recordedFunctions(t)
	for want, arguments := range map[string][]string{
		"omit --node":                         {"--node", "worker-1"},
		"cannot print a template in the form": {"--form", "kep5941"},
	} {
		code, _, stderr := runSlices(t, "", append([]string{"-f", file, "--from", dir, "--template"}, arguments...)...)
		if code == exit.OK || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit status %d, want %q:\n%s", arguments, code, want, stderr)
		}
	}
}
