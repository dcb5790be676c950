package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server, with the driver's definitions and webhook, accepts all objects that netdra generates from the corpus,
// in each import mode.
func TestImportedIsAccepted(t *testing.T) {
	e := newEnv(t, "imported")
	namespaces := []string{"apps", "users", "other", "sriov-network-operator"}
	var objects []string
	for _, namespace := range namespaces {
		objects = append(objects, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", namespace))
	}
	e.apply(documents(objects...))
	for _, namespace := range namespaces {
		e.eventually("ServiceAccount of "+namespace, func(ctx context.Context) (bool, error) {
			_, err := e.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			return err == nil, err
		})
	}
	files, err := filepath.Glob("../../cmd/netdra/internal/importer/testdata/corpus/*.yaml")
	if err != nil || len(files) < 40 {
		t.Fatalf("found %d inputs (%v), want at least 40", len(files), err)
	}
	accepted := map[string]bool{}
	for _, mode := range []struct {
		flags []string
		least int // minimum number of inputs that result in objects
		text  string
	}{
		{nil, 30, "kind: NetworkTopology"},
		{[]string{"--keep-resource-names"}, 30, "extendedResourceName: "},
		{[]string{"--keep-multus"}, 10, "attachment: External"},
	} {
		applied, inMode := 0, false
		for _, file := range files {
			made, _ := e.imported(mode.flags, file, "")
			if strings.TrimSpace(made) == "" {
				continue
			}
			applied++
			inMode = inMode || strings.Contains(made, mode.text)
			if accepted[made] {
				continue // the result is the same as in another mode
			}
			accepted[made] = true
			// A dry run does not store schemas. Without its schema, the webhook rejects a topology.
			hasSchema := strings.Contains(made, "kind: CNIPluginSchema")
			made = documents(slices.DeleteFunc(strings.Split(made, "---\n"), func(document string) bool {
				return hasSchema && strings.Contains(document, "kind: NetworkTopology") ||
					customKind.MatchString(document)
			})...)
			if output, err := e.applyOnServer(made, "--dry-run=server"); err != nil {
				t.Errorf("cannot apply the result of %s %q: %v\n%s", filepath.Base(file), mode.flags, err, output)
			}
		}
		if applied < mode.least || !inMode {
			t.Errorf("with %q, only %d inputs resulted in objects, one with %q: %t", mode.flags, applied, mode.text,
				inMode)
		}
	}
}

// customKind matches workloads whose CustomResourceDefinition is not installed.
var customKind = regexp.MustCompile(`^apiVersion: ((trainer\.)?kubeflow\.org|(batch\.)?example\.com)/`)

// Objects that were imported with --keep-multus work with the real Multus after the manual steps in the report: adding
// the policy for a resource whose device plugin was not imported, and replacing the template with a claim for Multus
// 4.2.3. This test uses a link instead of a virtual function, and the plugin netdev instead of sriov.
func TestImportedIsKeptWithMultus(t *testing.T) {
	e := newEnv(t, "kept")
	e.multus()
	e.veth("kp0")
	address := mac(e.link("kp0"))
	const lan = `{"cniVersion": "1.0.0", "name": "fast", "type": "netdev",
		"ipam": {"type": "host-local", "subnet": "10.184.0.0/24"}}`
	old := strings.NewReplacer("metadata: {name: old}",
		"metadata: {name: old, namespace: kept, annotations: {k8s.v1.cni.cncf.io/networks: fast}}",
		"    imagePullPolicy:", "    resources: {limits: {example.com/fast: 1}}\n    imagePullPolicy:",
	).Replace(pod("old", ""))
	network := func(resource string) string {
		return strings.Replace(network("fast", resource, lan), "{name: fast,", "{name: fast, namespace: kept,", 1)
	}
	made, report := e.imported([]string{"--keep-multus"}, "-", documents(network("example.com/fast"), old))
	if !containsAll(report, []string{
		"write a policy with additionalAttributes: {resourceName: example.com/fast} and resourceName: example.com/fast",
		"create one for each pod instead of the template, and write its name here"}) {
		t.Errorf("the report lacks an instruction:\n%s", report)
	}
	if !containsAll(made, []string{"attachment: External", "resourceClaimTemplateName: fast"}) ||
		strings.Contains(made, "limits") {
		t.Fatalf("unexpected generated objects:\n%s", made)
	}
	e.apply(documents(network("fast"), strings.Replace(offered("kp", "kp0", "example.com/fast"), "  exposure:",
		"  exposure:\n    additionalAttributes: {resourceName: example.com/fast}", 1), claimNamed("fast", "fast-netdev")))
	e.apply(strings.Replace(made, "resourceClaimTemplateName: fast", "resourceClaimName: fast", 1))
	e.ready("old")
	if shown := e.inPod("old", "ip", "addr", "show", "dev", "net1"); !containsAll(shown,
		[]string{"inet 10.184.0.", address}) {
		t.Errorf("net1 has unexpected addresses:\n%s", shown)
	}
	e.eventually("the claim reports its device as reserved", func(context.Context) (bool, error) {
		status, err := e.kubectl("", "get", "resourceclaim", "fast", "-o", "jsonpath={.status.devices}")
		return strings.Contains(status, `"reason":"Reserved"`), fmt.Errorf("%s: %w", status, err)
	})
	e.deleting("old")
	e.gone("old")
	if after := mac(e.link("kp0")); after != address {
		t.Errorf("the link was restored with MAC address %s, want %s", after, address)
	}
}

// A pod with a Multus annotation gets its interface, with the requested name and addresses, through the objects that
// netdra generates from the pod and its NetworkAttachmentDefinition.
func TestImportedNetworkAttaches(t *testing.T) {
	e := newEnv(t, "import-pod")
	e.veth("im0")
	made := e.importFile("-", `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: lan, namespace: import-pod}
spec:
  config: |
    {"cniVersion": "0.4.0", "name": "lan", "plugins": [
      {"type": "macvlan", "master": "im0", "mode": "bridge", "capabilities": {"ips": true},
       "ipam": {"type": "host-local", "subnet": "10.148.0.0/24", "rangeStart": "10.148.0.50"}},
      {"type": "tuning", "mtu": 1400, "capabilities": {"mac": true}}]}
---
`+strings.Replace(pod("old", ""), "metadata: {name: old}", `metadata:
  name: old
  namespace: import-pod
  annotations:
    k8s.v1.cni.cncf.io/networks: >-
      [{"name": "lan", "interface": "data0", "ips": ["10.148.0.77"], "mac": "02:00:00:00:01:48"}]`, 1))
	e.apply(made)
	e.ready("old")
	shown := e.inPod("old", "ip", "addr", "show", "dev", "data0")
	for _, text := range []string{"inet 10.148.0.77/24", "mtu 1400", "02:00:00:00:01:48"} {
		if !strings.Contains(shown, text) {
			t.Errorf("data0 does not contain %q:\n%s", text, shown)
		}
	}
	e.deleting("old")
	e.gone("old")
}

// importFile returns the objects that netdra generates from an input file.
func (e *env) importFile(file, input string) string {
	e.Helper()
	made, report := e.imported(nil, file, input)
	e.Logf("%s\n%s", report, made)
	return made
}

// imported returns netdra's output and report for a file or for standard input. It is not a failure if manual steps
// remain.
func (e *env) imported(flags []string, file, input string) (made, report string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "../../bin/netdra", append([]string{"import", "-f", file}, flags...)...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && (!errors.As(err, &failed) || failed.ExitCode() != 1) {
		e.Fatalf("netdra import -f %s %q: %v\n%s", file, flags, err, stderr.String())
	}
	return stdout.String(), stderr.String()
}

// applyOnServer applies objects in any namespace.
func (e *env) applyOnServer(objects string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := e.cluster.Command(ctx, append([]string{"kubectl", "apply", "-f", "-"}, flags...)...)
	var output strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(objects), &output, &output
	err := e.cluster.Run(cmd)
	return output.String(), err
}
