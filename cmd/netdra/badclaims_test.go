package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/simulate"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec/claimspectest"
)

// twoLinks exposes the fixture's physical functions for macvlan and its virtual functions for sriov.
const twoLinks = `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: links}
spec:
  selector: {cel: 'device.attributes["dra.networking"].ifName in ["eth0", "eth1"]'}
  exposure:
    allowMultipleAllocations: true
    capacity: {shares: {value: "64", requestPolicy: {default: "1"}}}
    supportedCNIPlugins: [{name: macvlan}]
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: vfs}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}]}
`

// simulateDocuments runs "netdra simulate" on the fixture, which has two physical functions with four virtual functions
// each.
func simulateDocuments(t *testing.T, documents ...string) []simulate.Answer {
	t.Helper()
	fixture := filepath.Join("..", "..", "discovery", "testdata", "igb-4vfs")
	stdin := strings.Join(append([]string{twoLinks}, documents...), "\n---\n")
	code, stdout, stderr := runNetdra(t, stdin, "simulate", "-f", "-", "--machines", fixture, "-o", "json")
	var tried []simulate.Answer
	if err := json.Unmarshal([]byte(stdout), &tried); err != nil || code != exit.Failed {
		t.Fatalf("exit status %d, %v:\n%s%s", code, err, stdout, stderr)
	}
	return tried
}

// simulate rejects bad claims with the same messages as the driver.
func TestSimulateRefusesBadClaims(t *testing.T) {
	objects := claimspectest.Topologies("eth0", "eth1") + "---\n" + claimspectest.Classes("eth0", "eth1")
	for _, bad := range claimspectest.Cases(t) {
		t.Run(bad.Name, func(t *testing.T) {
			tried := simulateDocuments(t, objects, bad.Templates(), bad.Pod())
			if len(tried) != 1 || tried[0].Fits || len(tried[0].Nodes) != 1 {
				t.Fatalf("got trials %+v, want one that does not fit on one node", tried)
			}
			got := strings.Join(tried[0].Refused, "\n")
			for _, want := range bad.Wants {
				if !strings.Contains(got, want) {
					t.Errorf("got refusals %q, want %q", got, want)
				}
			}
		})
	}
}

// A refused claim consumes no devices, so all of them remain available to the next claim.
func TestSimulateRefusedClaimsHoldNothing(t *testing.T) {
	const topology = `
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: vfs}
spec: {steps: [{name: vf, type: sriov, selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}}]}`
	claim := func(name, request, config string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: " + name + "}\n" +
			"spec: {devices: {requests: [{name: r, exactly: {deviceClassName: vfs-vf, " + request + "}}], config: [" +
			config + "]}}"
	}
	const ours = "{opaque: {driver: dra.networking, parameters: "
	tried := simulateDocuments(t, topology,
		claim("a-all", "allocationMode: All", ""),
		claim("b-config", "count: 1", ours+"{networkTopologyRef: {name: vfs}, step: vf}}}"),
		claim("c-mac", "count: 1", ours+`{mac: "02:00:00:00:00:01"}}}`),
		claim("d-several", "count: 2", ours+`{mac: "02:00:00:00:00:01"}}}`),
		claim("e-good", "count: 8", ""),
	)
	for i, want := range []string{
		"set allocationMode to ExactCount", `unknown parameter "networkTopologyRef"`,
		`claim default/c-mac sets mac of step "vf", which the topology does not allow`, "use a separate request " +
			"for each device", "",
	} {
		got := strings.Join(tried[i].Refused, "\n")
		if tried[i].Fits != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: fits: %v, got refusals %q, want %q", tried[i].What, tried[i].Fits, got, want)
		}
	}
}

// If only the device classes of a topology are known, simulate checks claims for the topology only for missing devices
// and says so in a remark.
func TestSimulateWithClassesOnly(t *testing.T) {
	class := func(step string) string {
		return `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: pair-` + step + `, labels: {networking.dra.io/topology: pair, networking.dra.io/step: ` + step + `}}
spec:
  selectors: [{cel: {expression: 'device.attributes["dra.networking"].type == "vf"'}}]
  config: [{opaque: {driver: dra.networking, parameters: {networkTopologyRef: {name: pair}, step: ` + step + `}}}]`
	}
	const claim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests: [{name: r, exactly: {deviceClassName: pair-a}}]
    config: [{opaque: {driver: dra.networking, parameters: {mac: "02:00:00:00:00:01"}}}]`
	tried := simulateDocuments(t, class("a"), class("b"), claim, claimOf("none", "nothing", 1, ""))
	const want = `NetworkTopology pair: Required value: claim default/c has no device for root step "b": ` +
		`add a request with deviceClassName pair-b`
	const remark = "cannot check the rest of claim default/c: NetworkTopology pair is unknown; add it with -f"
	if len(tried) != 2 || !slices.Equal(tried[0].Refused, []string{want}) ||
		!slices.Equal(tried[0].Remarks, []string{remark}) {
		t.Errorf("got trials %+v, want %q and %q", tried, want, remark)
	}
}

// A missing plugin that has a built-in schema is reported under the name used in topologies, not under its attribute
// name.
func TestSimulateNamesThePlugin(t *testing.T) {
	for plugin, name := range map[string]string{"host-device": "host-device", "my.own-plugin": "my_own_plugin"} {
		tried := simulateDocuments(t, `
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: t}
spec: {steps: [{name: a, type: `+plugin+`, selector: {cel: "true"}}]}`, `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: t-a}}]}}`)
		want := "it requires CNI plugin " + name + ", and the devices have macvlan, sriov"
		if len(tried) != 1 || len(tried[0].Refusals) != 1 || !strings.Contains(tried[0].Refusals[0].Reason, want) {
			t.Errorf("got trials %+v, want %q", tried, want)
		}
	}
}

const oneOfVFs = `
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: vfs}
spec: {steps: [{name: vf, type: sriov, selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}}]}`

// claimOf returns a claim that requests count devices from a class and includes a driver configuration.
func claimOf(name, class string, count int, config string) string {
	return fmt.Sprintf("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: %s}\nspec: {devices: {"+
		"requests: [{name: r, exactly: {deviceClassName: %s, count: %d}}], config: [%s]}}", name, class, count, config)
}

// A missing class is reported for every claim that references it. Other claims are still simulated.
func TestSimulateClassesThatAreNotThere(t *testing.T) {
	tried := simulateDocuments(t, oneOfVFs, claimOf("a-missing", "somewhere", 1, ""),
		claimOf("b-fits", "vfs-vf", 1, ""))
	for i, want := range []string{"DeviceClass somewhere does not exist; pass the NetworkTopology that it belongs " +
		"to, or the class itself, with -f", ""} {
		if have := strings.Join(tried[i].Missing, "\n"); have != want || tried[i].Fits != (want == "") {
			t.Errorf("%s: got missing %q, fits: %v, want missing %q", tried[i].What, have, tried[i].Fits, want)
		}
	}
}

// A pod that references a missing claim does not fit. Other pods are still simulated.
func TestSimulatePodsWithoutTheirClaims(t *testing.T) {
	pod := func(name, reference string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [], resourceClaims: [" +
			"{name: net" + reference + "}]}"
	}
	tried := simulateDocuments(t, oneOfVFs, pod("a", ", resourceClaimName: nic"), claimOf("good", "vfs-vf", 1, ""),
		pod("b", ", resourceClaimName: good"), pod("c", ", resourceClaimTemplateName: nics"), pod("d", ""))
	const nowhere = ", which is not in the files; add it with -f, or look it up with --cluster"
	for i, want := range []string{"it names the ResourceClaim nic" + nowhere, "",
		"it names the ResourceClaimTemplate nics" + nowhere,
		"its entry net in resourceClaims names no claim; set a resourceClaimName or a resourceClaimTemplateName"} {
		if have := strings.Join(tried[i].Missing, "\n"); have != want || tried[i].Fits != (want == "") {
			t.Errorf("%s: got missing %q, fits: %v, want missing %q", tried[i].What, have, tried[i].Fits, want)
		}
	}
}
