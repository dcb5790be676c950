package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/importer"
)

// network returns a NetworkAttachmentDefinition that uses a link.
func network(link string) string {
	return `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: lan, namespace: apps}
spec:
  config: '{"cniVersion": "0.4.0", "name": "lan", "type": "macvlan", "master": "` + link + `", "mode": "bridge"}'
`
}

// Objects go to stdout and the report goes to stderr. -o text prints only the report, and -o json prints both. The exit
// status indicates whether manual steps remain.
func TestImport(t *testing.T) {
	for name, test := range map[string]struct {
		input          string
		arguments      []string
		code           int
		stdout, stderr string
	}{
		"objects": {network("eth1"), nil, exit.OK, "kind: ResourceClaimTemplate", "0 findings to review"},
		"report":  {network("eth1"), []string{"-o", "text"}, exit.OK, "0 findings to review", ""},
		"by hand": {strings.Replace(network("eth1"), `"mode"`, `"modus": "x", "mode"`, 1), nil, exit.Failed,
			"kind: NetworkTopology", `modus = "x": topologies cannot set this parameter of macvlan`},
		"nothing to import": {"", nil, exit.Refused, "", "the input contains nothing to translate"},
		"no YAML":           {"a: [", nil, exit.Refused, "", "not YAML"},
		"form":              {network("eth1"), []string{"-o", "csv"}, exit.Refused, "", "cannot use --output"},
		"namespace": {strings.Replace(network("eth1"), ", namespace: apps", "", 1), []string{"-n", "mine"}, exit.OK,
			"namespace: mine", ""},
	} {
		t.Run(name, func(t *testing.T) {
			arguments := append([]string{"import", "-f", "-"}, test.arguments...)
			code, stdout, stderr := runNetdra(t, test.input, arguments...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) ||
				test.stdout == "" && stdout != "" {
				t.Errorf("exit status %d\n%s\n%s", code, stdout, stderr)
			}
		})
	}
	code, stdout, _ := runNetdra(t, network("eth1"), "import", "-f", "-", "-o", "json")
	var result importer.Result
	if err := json.Unmarshal([]byte(stdout), &result); err != nil || code != exit.OK || len(result.Objects) != 3 ||
		len(result.Findings) == 0 {
		t.Errorf("exit status %d, %v\n%s", code, err, stdout)
	}
}

// The imported objects can be used to simulate a recorded machine.
func TestSimulateImported(t *testing.T) {
	dir, _ := recordedExample(t, "example6")
	for link, want := range map[string]int{"enp3s0f0": exit.OK, "nothing": exit.Refused} {
		_, imported, _ := runNetdra(t, network(link), "import", "-f", "-")
		code, stdout, stderr := runNetdra(t, imported, "simulate", "-f", "-", "--machines", dir)
		if fits := strings.Contains(stdout, "fits on worker-1"); code != want || fits != (want == exit.OK) {
			t.Errorf("link %s: exit status %d, or the wrong answer\n%s\n%s", link, code, stdout, stderr)
		}
	}
}

// A pod gets a macvlan interface on a link, and the files of the link's RDMA device, which pods share.
func TestSimulateSharedRDMA(t *testing.T) {
	dir, _ := recordedExample(t, "example6")
	for sharers, want := range map[string]int{"2": exit.OK, "1": exit.Failed} {
		_, imported, _ := runNetdra(t, network("enp3s0f0")+`---
apiVersion: v1
kind: ConfigMap
metadata: {name: rdma-devices, namespace: kube-system}
data:
  config.json: '{"configList": [{"resourceName": "hca", "rdmaHcaMax": `+sharers+`, "devices": ["enp3s0f0"]}]}'
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: servers, namespace: apps}
spec:
  replicas: 2
  selector: {matchLabels: {app: servers}}
  template:
    metadata: {labels: {app: servers}, annotations: {k8s.v1.cni.cncf.io/networks: lan}}
    spec: {containers: [{name: main, image: none, resources: {limits: {rdma/hca: 1}}}]}
`, "import", "-f", "-")
		code, stdout, stderr := runNetdra(t, imported, "simulate", "-f", "-", "--machines", dir)
		if code != want {
			t.Errorf("%s sharers: exit status %d\n%s\n%s", sharers, code, stdout, stderr)
		}
	}
}
