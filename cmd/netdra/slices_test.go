package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/discovery"
)

var update = flag.Bool("update", false, "update the files in testdata")

// recordedFunctions writes a recording named worker-1 with a bridge and a 100 Gbit/s physical function, whose four
// virtual functions are bound to vfio-pci.
func recordedFunctions(t *testing.T) string {
	t.Helper()
	const pf = "devices/pci0000:00/0000:03:00.0"
	sys := discovery.Tree{
		Links: map[string]string{
			"bus/pci/devices/0000:03:00.0": "../../../" + pf, "class/net/eth0": "../../" + pf + "/net/eth0", pf +
				"/net/eth0/device": "../../../0000:03:00.0",
			"class/net/br0": "../../devices/virtual/net/br0",
		},
		Files: map[string]string{pf + "/class": "0x020000", pf + "/sriov_totalvfs": "8", pf + "/sriov_numvfs": "4", pf +
			"/numa_node": "0", pf + "/net/eth0/speed": "100000"},
	}
	for i := range 4 {
		address := fmt.Sprintf("0000:03:00.%d", 2+i)
		vf := "devices/pci0000:00/" + address
		sys.Links["bus/pci/devices/"+address] = "../../../" + vf
		sys.Links[fmt.Sprintf("%s/virtfn%d", pf, i)] = "../" + address
		sys.Links[vf+"/physfn"], sys.Links[vf+"/driver"] = "../0000:03:00.0", "../../bus/pci/drivers/vfio-pci"
		sys.Files[vf+"/class"], sys.Files[vf+"/numa_node"] = "0x020000", "0"
	}
	recording := discovery.Recording{Sys: sys, Netlink: discovery.RecordedNetlink{Links: []discovery.RecordedLink{
		{Index: 2, Name: "eth0", Kind: "device", OperState: "up"}, {Index: 3, Name: "br0", Kind: "bridge",
			OperState: "up"}}}}
	dir := filepath.Join(t.TempDir(), "worker-1")
	if err := recording.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// somePolicies match every device in recordedFunctions except the bridge.
const somePolicies = `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: vfs}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}, {name: dpdk, exclusive: true}]}
---
# Others are left out.
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: macvlans}
spec:
  nodeSelector: {matchLabels: {zone: a}}
  selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}
  exposure:
    allowMultipleAllocations: true
    deviceNameSuffix: -macvlan
    capacity: {macvlans: {value: "64", requestPolicy: {default: "1"}}}
    supportedCNIPlugins: [{name: macvlan}]
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: whole}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}
  exposure: {deviceNameSuffix: -whole, supportedCNIPlugins: [{name: host-device, exclusive: true}]}
`

// policyFile writes policies to a file.
func policyFile(t *testing.T, policies string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(path, []byte(policies), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// runSlices runs "netdra slices".
func runSlices(t *testing.T, stdin string, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	deps := osdeps.Deps{Facts: osdeps.ReadFacts, Hostname: func() (string, error) { return "Host-1", nil }}
	code = run(t.Context(), deps, printer.Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs},
		append([]string{"slices"}, arguments...)...)
	return code, out.String(), errs.String()
}

// slicesOf runs "netdra slices" on the recording with the given policies.
func slicesOf(t *testing.T, arguments ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := runSlices(t, somePolicies,
		append([]string{"-f", "-", "--from", recordedFunctions(t), "--node-labels", "zone=a"}, arguments...)...)
	if code != exit.OK {
		t.Fatalf("exit status %d:\n%s", code, stderr)
	}
	return stdout, stderr
}

func TestSlicesText(t *testing.T) {
	for _, test := range []struct {
		flags []string
		want  string
	}{{nil, `
POOL           DEVICE        TYPE  USE        CAPACITY                 CONSUMES                                               POLICY
worker-1/eth0  eth0-macvlan  pf    shared     macvlans=64 (default 1)  macvlans-capacity=64                                   macvlans
worker-1/eth0  eth0-whole    pf    exclusive  -                        bandwidth=100k exclusion-slots=5 macvlans-capacity=64  whole
worker-1/eth0  eth0v0        vf    exclusive  bandwidth=25k            bandwidth=25k exclusion-slots=1                        vfs
worker-1/eth0  eth0v1        vf    exclusive  bandwidth=25k            bandwidth=25k exclusion-slots=1                        vfs
worker-1/eth0  eth0v2        vf    exclusive  bandwidth=25k            bandwidth=25k exclusion-slots=1                        vfs
worker-1/eth0  eth0v3        vf    exclusive  bandwidth=25k            bandwidth=25k exclusion-slots=1                        vfs

6 devices in 1 pool and 2 slices, 6051 bytes
`}, {[]string{"--form", "kep5941"}, `
POOL           DEVICE        TYPE  USE        CAPACITY                 CONSUMES                                               POLICY
worker-1/eth0  eth0-macvlan  pf    shared     macvlans=64 (default 1)  macvlans-capacity=64                                   macvlans
worker-1/eth0  eth0-whole    pf    exclusive  -                        bandwidth=100k exclusion-slots=5 macvlans-capacity=64  whole
worker-1/eth0  eth0v0        vf    exclusive  -                        bandwidth=as requested exclusion-slots=1               vfs
worker-1/eth0  eth0v1        vf    exclusive  -                        bandwidth=as requested exclusion-slots=1               vfs
worker-1/eth0  eth0v2        vf    exclusive  -                        bandwidth=as requested exclusion-slots=1               vfs
worker-1/eth0  eth0v3        vf    exclusive  -                        bandwidth=as requested exclusion-slots=1               vfs

6 devices in 1 pool and 2 slices, 6078 bytes
`}, {[]string{"--form", "mixins", "--compatibility-groups"}, `
POOL           DEVICE        TYPE  USE        CAPACITY                 CONSUMES                                  POLICY
worker-1/eth0  eth0-macvlan  pf    shared     macvlans=64 (default 1)  exclusion-slots=0 [shared]                macvlans
worker-1/eth0  eth0-whole    pf    exclusive  -                        exclusion-slots=1 [only-eth0-whole]       whole
worker-1/eth0  eth0v0        vf    exclusive  bandwidth=25k            bandwidth=25k exclusion-slots=0 [shared]  vfs
worker-1/eth0  eth0v1        vf    exclusive  bandwidth=25k            bandwidth=25k exclusion-slots=0 [shared]  vfs
worker-1/eth0  eth0v2        vf    exclusive  bandwidth=25k            bandwidth=25k exclusion-slots=0 [shared]  vfs
worker-1/eth0  eth0v3        vf    exclusive  bandwidth=25k            bandwidth=25k exclusion-slots=0 [shared]  vfs

6 devices in 1 pool and 2 slices, 3772 bytes
`}} {
		stdout, stderr := slicesOf(t, append(test.flags, "-o", "text")...)
		if diff := cmp.Diff(test.want, "\n"+stdout); diff != "" ||
			stderr != "bridge br0 is not offered: no policy matches it\n" {
			t.Errorf("%v: got stderr %s, stdout (-want +got):\n%s", test.flags, stderr, diff)
		}
	}
}

// TestSlicesGolden compares each form with a file in testdata.
func TestSlicesGolden(t *testing.T) {
	for name, arguments := range map[string][]string{
		"counters.yaml": nil, "kep5941.yaml": {"--form", "kep5941"}, "mixins.yaml": {"--form", "mixins"},
		"groups.yaml": {"--list-attributes", "--compatibility-groups"},
	} {
		stdout, _ := slicesOf(t, arguments...)
		path := filepath.Join("testdata", "slices", name)
		if *update {
			if err := os.WriteFile(path, []byte(stdout), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), stdout); diff != "" {
			t.Errorf("%s (-want +got); -update writes it:\n%s", name, diff)
		}
	}
}

// By default, slices are printed in API form: the API types can decode every field.
func TestSlicesAreThoseOfTheAPI(t *testing.T) {
	counters, _ := slicesOf(t)
	var read []resourceapi.ResourceSlice
	for _, document := range strings.Split(counters, "---\n")[1:] {
		var slice resourceapi.ResourceSlice
		if err := yaml.UnmarshalStrict([]byte(document), &slice); err != nil {
			t.Fatal(err)
		}
		read = append(read, slice)
	}
	stdout, _ := slicesOf(t, "-o", "json")
	var list resourceapi.ResourceSliceList
	if err := json.Unmarshal([]byte(stdout), &list); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read, list.Items); diff != "" || len(read) != 2 || len(read[1].Spec.Devices) != 6 ||
		read[0].Spec.Pool.ResourceSliceCount != 2 {
		t.Errorf("got %d slices; YAML and JSON differ (-yaml +json):\n%s", len(read), diff)
	}
}

// Missing inputs have defaults: the node name and the node's plugins. Without labels, no node selector matches.
func TestSlicesDefaults(t *testing.T) {
	file := policyFile(t, somePolicies)
	_, stdout, stderr := runSlices(t, "", "-f", file, "--from", recordedFunctions(t), "-o", "text", "--node", "other",
		"--cni-plugin", "sriov", "--cni-plugin", "host-device")
	if strings.Contains(stdout, "macvlan") || !strings.Contains(stdout, "other/eth0") {
		t.Errorf("a policy for other nodes applies, or the node has the wrong name:\n%s", stdout)
	}
	if !strings.Contains(stderr, "policy vfs: CNI plugin dpdk is not installed on the node") {
		t.Errorf("stderr lacks the plugin that is not installed: %s", stderr)
	}
	code, stdout, stderr := runSlices(t, "", "-f", file, "-o", "json") // on this machine
	if code != exit.OK || !strings.Contains(stdout, `"kind": "List"`) || strings.Contains(stdout, "worker-1") {
		t.Errorf("exit status %d:\n%s%s", code, stdout, stderr)
	}
}

func TestSlicesHidden(t *testing.T) {
	exclude := `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: no-bridges}
spec: {action: exclude, selector: {cel: 'device.attributes["dra.networking"].type == "bridge"'}}`
	_, stdout, stderr := runSlices(t, exclude, "-f", "-", "--from", recordedFunctions(t), "-o", "text")
	want := "bridge br0 is not offered: policy no-bridges: excludes: the expression is true\npf eth0 is not offered: " +
		"no policy matches it\n"
	if !strings.HasPrefix(stderr, want) || stdout != "no device is published\n" {
		t.Errorf("got stdout %s, stderr:\n%s", stdout, stderr)
	}
}

func TestSlicesRefuses(t *testing.T) {
	dir := recordedFunctions(t)
	file := policyFile(t, somePolicies)
	unknown := policyFile(t, strings.Replace(somePolicies, "exposure:", "exposures: 1\n  expo:", 1))
	for want, arguments := range map[string][]string{
		"pass a file with -f":              {"--from", dir},
		"policy vfs is already defined at": {"-f", file, "-f", file, "--from", dir},
		`unknown field "spec.expo"`:        {"-f", unknown, "--from", dir},
		`unknown field "spec.exposures"`:   {"-f", unknown, "--from", dir},
		"the policy has no name": {"-f",
			policyFile(t, strings.Replace(somePolicies, "{name: vfs}", "{}", 1)), "--from", dir},
		"use counters, kep5941, mixins":               {"-f", file, "--from", dir, "--form", "best"},
		"use text, json or yaml":                      {"-f", file, "--from", dir, "-o", "csv"},
		`--node: cannot name pools of node "A`:        {"-f", file, "--from", dir, "--node", "A_b"},
		"no such file":                                {"-f", file + "x", "--from", dir},
		"json of the recording":                       {"-f", file, "--from", t.TempDir()},
		"to show one device, run netdra explain eth0": {"eth0"},
	} {
		if code, stdout, stderr := runSlices(t, "", arguments...); code != exit.Refused ||
			!strings.Contains(stderr, want) {
			t.Errorf("%v: exit status %d, want %q:\n%s%s", arguments, code, want, stdout, stderr)
		}
	}
}

// Policies from files get the API server's defaults.
func TestPolicyDefaults(t *testing.T) {
	const policies = `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: a}
spec: {selector: {cel: "true"}}
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: b}
spec: {selector: {cel: "true"}, priority: 0, action: exclude}
`
	read, err := manifest.ReadPolicies([]string{"-"}, strings.NewReader(policies))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range read {
		got = append(got, fmt.Sprintf("%s: %d %s", read[i].Name, read[i].Spec.Priority, read[i].Spec.Action))
	}
	if diff := cmp.Diff([]string{"a: 100 expose", "b: 0 exclude"}, got); diff != "" {
		t.Errorf("wrong policies (-want +got):\n%s", diff)
	}
	crd, err := os.ReadFile("../../deploy/crds/networking.dra.io_deviceexposurepolicies.yaml")
	if err != nil || !strings.Contains(string(crd), "default: 100") ||
		!strings.Contains(string(crd), "default: expose") {
		t.Errorf("the defaults in the CRD differ, or it cannot be read (%v)", err)
	}
}

// Policies that can never match because they compare an attribute with an impossible value are reported.
func TestSlicesSayWhatNeverMatches(t *testing.T) {
	file := policyFile(t, strings.ReplaceAll(`
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: quoted}
spec:
  selector: {cel: '@mtu == "1500"'}
  exposure: {supportedCNIPlugins: [{name: macvlan, exclusive: true}]}
`, "@", `device.attributes["dra.networking"].`))
	const want = `policy quoted: mtu is a number, compared with the string "1500": write mtu == 1500, without quotes`
	dir := recordedFunctions(t)
	if _, stdout, stderr := runNetdra(t, "", "slices", "-f", file, "--from", dir); !strings.Contains(stderr, want) {
		t.Errorf("slices does not explain the quoted number:\n%s%s", stdout, stderr)
	}
	claim := policyFile(t, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec: "+
		"{devices: {requests: [{name: r, exactly: {deviceClassName: x}}]}}")
	if _, stdout, stderr := runNetdra(t, "", "simulate", "-f", file, "-f", claim, "--machines",
		dir); !strings.Contains(stderr, want) {
		t.Errorf("simulate does not explain the quoted number:\n%s%s", stdout, stderr)
	}
}
