package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/simulate"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// recordedExample records the machine from a published example as worker-1. It returns the directory of the recording
// and the example's policies.
func recordedExample(t *testing.T, name string) (dir, policies string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "worker-1")
	if err := discoverytest.Examples()[name].Write(dir); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(filepath.Join("..", "..", "slices", "testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var documents []string // the example's slices are computed, not read
	for _, document := range strings.Split(string(all), "\n---\n") {
		if !strings.Contains(document, "kind: ResourceSlice") {
			documents = append(documents, document)
		}
	}
	policies = filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(policies, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, policies
}

// Every kind of refusal occurs on the example machine with macvlan, passthrough and virtual functions.
func TestSimulateGolden(t *testing.T) {
	dir, policies := recordedExample(t, "example6")
	claims := filepath.Join("testdata", "simulate", "claims.yaml")
	code, stdout, stderr := runNetdra(t, "", "simulate", "-f", policies, "-f", claims, "--machines", dir)
	if code != exit.Failed {
		t.Errorf("exit status %d:\n%s", code, stderr)
	}
	golden(t, filepath.Join("testdata", "simulate", "claims.txt"), stdout+stderr)
	code, stdout, _ = runNetdra(t, "", "simulate", "-f", policies, "-f", claims, "--machines", dir, "-o", "json")
	var tried []simulate.Answer
	if err := json.Unmarshal([]byte(stdout), &tried); err != nil || code != exit.Failed || !tried[0].Fits ||
		tried[1].Fits || len(tried[1].Refusals) != 1 {
		t.Errorf("exit status %d, %v:\n%s", code, err, stdout)
	}
}

// A claim that the driver refuses does not fit, and takes no devices away from later claims.
func TestSimulateRootsGolden(t *testing.T) {
	dir, policies := recordedExample(t, "example6")
	code, stdout, stderr := runNetdra(t, "", "simulate", "-f", policies, "-f",
		filepath.Join("testdata", "simulate", "roots.yaml"), "--machines", dir)
	if code != exit.Failed {
		t.Errorf("exit status %d:\n%s", code, stderr)
	}
	golden(t, filepath.Join("testdata", "simulate", "roots.txt"), stdout+stderr)
}

// For networks that pods must select, simulate reports the same errors as the driver, based on the definitions in the
// files.
func TestSimulateSelectedNetworks(t *testing.T) {
	const sample = "../../deploy/samples/examples/9-ovn-kubernetes.yaml"
	dir, _ := recordedExample(t, "example9")
	data, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	definition := func(name, more string) string {
		return fmt.Sprintf("\n---\napiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n"+
			"metadata: {name: %[1]s, namespace: default}\nspec: {config: '{\"type\": \"ovn-k8s-cni-overlay\", "+
			"\"name\": %[1]q, \"netAttachDefName\": \"default/%[1]s\"%[2]s}'}\n", name, more)
	}
	both := definition("tenant-localnet", `, "topology": "localnet"`) + definition("tenant-fast",
		`, "topology": "layer2"`)
	for name, test := range map[string]struct {
		text string
		fits bool
		said string
	}{
		"as in the sample": {text: string(data) + both, fits: true},
		"without definitions": {text: string(data), fits: true, said: "cannot check network default/tenant-fast of " +
			"NetworkTopology ovnk-accelerated: its NetworkAttachmentDefinition is not in the files"},
		"a definition that is wrong": {text: string(data) + definition("tenant-localnet", `, "topology": "localnet"`) +
			definition("tenant-fast", ""), said: "spec.steps[0].config.topology: Required value"},
		"an annotation that lacks one": {text: strings.ReplaceAll(string(data), ",default/tenant-fast", "") + both,
			said: "it selects default/tenant-localnet@net1; add default/tenant-fast to the annotation"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := runNetdra(t, test.text, "simulate", "-f", "-", "--machines", dir)
			if (code == exit.OK) != test.fits || !strings.Contains(stdout+stderr, test.said) {
				t.Errorf("exit status %d:\n%s%s\nwant %q", code, stdout, stderr, test.said)
			}
		})
	}
}

// Two claims that are each valid may request the same interface name in a pod. The driver would refuse the pod, so
// simulate must not report that the pod fits.
func TestSimulateNamesOfAPod(t *testing.T) {
	const text = `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: nics}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}
  exposure:
    allowMultipleAllocations: true
    capacity: {macvlans: {value: "4", requestPolicy: {default: "1"}}}
    supportedCNIPlugins: [{name: macvlan, exclusive: false}]
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: lan}
spec:
  steps:
  - name: link
    type: macvlan
    selector: {cel: 'device.attributes["dra.networking"].type == "pf"'}
    claimParameters: [interfaceName]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: first}
spec:
  spec:
    devices:
      requests: [{name: r, exactly: {deviceClassName: lan-link}}]
      config: [{opaque: {driver: dra.networking, parameters: {interfaceName: data0}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: second}
spec:
  spec:
    devices:
      requests: [{name: r, exactly: {deviceClassName: lan-link}}]
      config: [{opaque: {driver: dra.networking, parameters: {interfaceName: NAME}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  resourceClaims: [{name: a, resourceClaimTemplateName: first}, {name: b, resourceClaimTemplateName: second}]
  containers: [{name: main, image: web, resources: {claims: [{name: a}, {name: b}]}}]
`
	for name, want := range map[string]string{
		"data1": "pod default/web fits",
		"data0": `"data0": step "link" (macvlan) of topology lan already has that name`,
	} {
		code, stdout, stderr := runNetdra(t, strings.ReplaceAll(text, "NAME", name), "simulate", "-f", "-",
			"--machines", "../../discovery/testdata/igb-4vfs")
		if (code == exit.OK) != (name == "data1") || !strings.Contains(stdout, want) {
			t.Errorf("exit status %d:\n%s%s\nwant %q", code, stdout, stderr, want)
		}
	}
}

// NICs are paired with GPUs from another driver. On h100, both drivers discover the attributes. On mi300x, the
// attributes come from the policy and the claim, or from a GPU driver that publishes the same attribute. A device
// without the attribute does not satisfy any constraint on the attribute.
func TestSimulateEightGPUsGolden(t *testing.T) {
	const samples, machines = "../../deploy/samples/examples/", "../../discovery/testdata/"
	data := func(name string) string { return filepath.Join("testdata", "simulate", name) }
	for name, arguments := range map[string][]string{
		"eight-h100": {"-f", samples + "eight-gpus-by-root.yaml", "-f", data("gpus-h100.yaml"), "--machines",
			machines + "h100"},
		"eight-mi300x": {"-f", samples + "eight-gpus-by-table.yaml", "-f", data("gpus-mi300x.yaml"), "--machines",
			machines + "mi300x"},
		// The sample contains the policy and a pod. The pod comes last and gets the remaining devices.
		"pairs-mi300x": {"-f", data("pairs-mi300x.yaml"), "-f", data("gpus-mi300x.yaml"), "-f",
			data("gpus-with-rails.yaml"), "-f", samples + "eight-gpus-by-table.yaml", "--machines", machines +
				"mi300x"},
		"derived-mi300x": {"--derived-attributes", "-f", data("derived-mi300x.yaml"), "-f", data("gpus-mi300x.yaml"),
			"-f", samples + "eight-gpus-by-table.yaml", "--machines", machines + "mi300x"},
	} {
		t.Run(name, func(t *testing.T) {
			_, stdout, stderr := runNetdra(t, "", append([]string{"simulate"}, arguments...)...)
			golden(t, data(name+".txt"), stdout+stderr)
		})
	}
}

func TestSimulateRefuses(t *testing.T) {
	dir, policies := recordedExample(t, "example1")
	const claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec: {devices: " +
		"{requests: [{name: r, exactly: {deviceClassName: x}}]}}"
	const topology = "apiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopology\nmetadata: {name: t}\nspec: " +
		"{steps: [{name: a, type: macvlan, config: {mut: 1}, selector: {cel: 'true'}}]}"
	const schema = "apiVersion: networking.dra.io/v1alpha1\nkind: CNIPluginSchema\nmetadata: {name: s}\nspec: " +
		"{cniType: mine, config: {properties: {x: {type: string, pattern: '('}}}}"
	for want, test := range map[string]struct {
		stdin     string
		arguments []string
	}{
		policies + " has no ResourceClaim, ResourceClaimTemplate or pod with claims; pass a file": {"",
			[]string{"-f", policies, "--machines", dir}},
		"no node publishes a device": {claim, []string{"-f", "-"}},
		"no policy exposes a device of worker-1: netdra slices shows the reasons": {
			claim + "\n---\napiVersion: networking.dra.io/v1alpha1\nkind: DeviceExposurePolicy\nmetadata: {name: " +
				"vfs}\nspec: {selector: {cel: 'false'}, exposure: {supportedCNIPlugins: [{name: sriov, exclusive: " +
				"true}]}}",
			[]string{"-f", "-", "--machines", dir}},
		`spec.devices.requests: is a string, must be a list`: {strings.Replace(claim,
			"[{name: r, exactly: {deviceClassName: x}}]", "r", 1), []string{"-f", "-"}},
		`unknown field "spec.device"`: {strings.Replace(claim, "devices", "device", 1),
			[]string{"-f", "-"}},
		"netdra supports only apiVersion resource.k8s.io/v1": {strings.Replace(claim, "k8s.io/v1",
			"k8s.io/v1beta1", 1), []string{"-f", "-"}},
		"the claim contains no requests": {strings.Replace(claim,
			"[{name: r, exactly: {deviceClassName: x}}]", "[]", 1), []string{"-f", "-"}},
		"get no DeviceClass:\n  stdin:4: spec.steps[0].config.mut": {topology, []string{"-f", "-"}},
		"stdin:4: spec.config.properties[x].pattern: Invalid":      {schema, []string{"-f", "-"}},
		"cannot use kubeconfig " + dir + "/none: no such file or directory": {claim,
			[]string{"-f", "-", "--cluster", "--kubeconfig", dir + "/none"}},
		"--machines /no/such: ":     {somePolicies + "---\n" + claim, []string{"-f", "-", "--machines", "/no/such"}},
		"if any flags in the group": {claim, []string{"-f", "-", "--cluster", "--machines", dir}},
	} {
		if code, stdout, stderr := runNetdra(t, test.stdin,
			append([]string{"simulate"}, test.arguments...)...); code != exit.Refused ||
			!strings.Contains(stderr, want) {
			t.Errorf("exit status %d, want %q:\n%s%s", code, want, stdout, stderr)
		}
	}
}

// A pod that requests an extended resource has no claim. It is simulated with the claim that kube-scheduler would
// create.
func TestSimulateExtendedResources(t *testing.T) {
	const files = `apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: p}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}]}
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: pair}
spec:
  steps:
  - {name: a, type: sriov, extendedResourceName: example.com/vf, selector: {cel: "true"}}
  - {name: b, type: sriov, selector: {cel: "true"}}
---
apiVersion: v1
kind: Pod
metadata: {name: half}
spec: {containers: [{name: c, image: x, resources: {limits: {example.com/vf: 1}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: whole}
spec: {containers: [{name: c, image: x, resources: {limits: {example.com/vf: 2, deviceclass.resource.kubernetes.io/pair-b: 2}}}]}`
	code, stdout, stderr := runNetdra(t, files, "simulate", "-f", "-", "--machines",
		"../../discovery/testdata/igb-4vfs")
	for _, want := range []string{
		`claim default/half-extended-resources has no device for root step "b"`,
		"set the limit deviceclass.resource.kubernetes.io/<deviceClassName> in the pod",
		"✓ pod default/whole fits on igb-4vfs", "whole-extended-resources  container-0-request-1  eth0v3",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("output lacks %q", want)
		}
	}
	if code != exit.Failed || t.Failed() {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
}

// A claim referenced by two pods is allocated for the first pod. Its devices determine the node of the second pod, even
// if that pod also has another claim.
func TestSimulateClaimOfTwoPods(t *testing.T) {
	const files = `apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: p}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  exposure:
    allowMultipleAllocations: true
    capacity: {shares: {value: "1", requestPolicy: {default: "1"}}}
    supportedCNIPlugins: [{name: sriov}]
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: vf}
spec: {steps: [{name: a, type: sriov, selector: {cel: "true"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: vf-a, count: 3}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: own}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: vf-a}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: first}
spec: {containers: [], resourceClaims: [{name: net, resourceClaimName: shared}]}
---
apiVersion: v1
kind: Pod
metadata: {name: second}
spec: {containers: [], resourceClaims: [{name: own, resourceClaimName: own}, {name: net, resourceClaimName: shared}]}
`
	other := filepath.Join(t.TempDir(), "worker-2")
	if err := os.CopyFS(other, os.DirFS("../../discovery/testdata/igb-4vfs")); err != nil {
		t.Fatal(err)
	}
	simulated := func(more string) (int, []simulate.Answer) {
		t.Helper()
		code, stdout, stderr := runNetdra(t, files+more, "simulate", "-f", "-", "--machines",
			"../../discovery/testdata/igb-4vfs,"+other, "-o", "json")
		var answers []simulate.Answer
		if err := json.Unmarshal([]byte(stdout), &answers); err != nil {
			t.Fatalf("exit status %d, %v:\n%s%s", code, err, stdout, stderr)
		}
		return code, answers
	}
	code, answers := simulated("")
	if code != exit.OK || len(answers) != 2 {
		t.Fatalf("exit status %d: %+v", code, answers)
	}
	first, second := answers[0], answers[1]
	if fmt.Sprint(first.Nodes, second.Nodes) != "[igb-4vfs worker-2] [igb-4vfs]" || len(first.Devices) != 3 ||
		len(second.Devices) != 4 || second.Devices[0].Claim != "own" ||
		!slices.Equal(first.Devices, second.Devices[1:]) {
		t.Errorf("the two claims were given\n%+v\n%+v", first, second)
	}
	// Only the other node has enough free devices, but the shared claim is not available there.
	code, answers = simulated(`---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: further}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: vf-a, count: 5}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: third}
spec: {containers: [], resourceClaims: [{name: net, resourceClaimName: shared}, {name: more, resourceClaimName: further}]}
`)
	if code != exit.Failed || len(answers) != 3 || answers[2].Fits || len(answers[2].Refusals) != 2 ||
		!slices.Contains(answers[2].Refusals[0].Taken, "pod default/second") ||
		!strings.Contains(answers[2].Refusals[1].Reason,
			"claim default/shared already has its devices on another node") {
		t.Errorf("exit status %d: %+v", code, answers)
	}
}

// Claims that share a name or have no name are treated as separate claims.
func TestSimulateClaimsOfOneName(t *testing.T) {
	const files = `apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: p}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}]}
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: vf}
spec: {steps: [{name: a, type: sriov, selector: {cel: "true"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: net}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: vf-a, count: 5}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: net}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: vf-a, count: 5}}]}}}
`
	code, stdout, stderr := runNetdra(t, files, "simulate", "-f", "-", "--machines",
		"../../discovery/testdata/igb-4vfs", "-o", "json")
	var answers []simulate.Answer
	if err := json.Unmarshal([]byte(stdout), &answers); err != nil || code != exit.Failed || len(answers) != 2 ||
		!answers[0].Fits || answers[1].Fits {
		t.Errorf("want a failure, as five of eight functions are requested twice: exit status %d, error = %v:\n%s%s",
			code, err, stdout, stderr)
	}
}
