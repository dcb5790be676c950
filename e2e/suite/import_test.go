package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server, with the driver's definitions and webhook, accepts everything that is made of the corpus.
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
		t.Fatalf("found %d inputs, %v", len(files), err)
	}
	applied := 0
	for _, file := range files {
		made := e.importFile(file)
		if strings.TrimSpace(made) == "" {
			continue
		}
		applied++
		if output, err := e.applyOnServer(made, "--dry-run=server"); err != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(file), err, output)
		}
	}
	if applied < 30 {
		t.Errorf("only %d inputs became objects", applied)
	}
}

// A pod that Multus would attach gets its interface, with name and addresses that it asks for, from what is made of it
// and its network.
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
			t.Errorf("data0 has not %q:\n%s", text, shown)
		}
	}
	e.deleting("old")
	e.gone("old")
}

// importFile returns what netdra makes of a file, or of its input. That somebody has to do something by hand is no
// failure.
func (e *env) importFile(file string, input ...string) string {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "../../bin/netdra", "import", "-f", file)
	cmd.Stdin = strings.NewReader(strings.Join(input, ""))
	var made, report bytes.Buffer
	cmd.Stdout, cmd.Stderr = &made, &report
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && (!errors.As(err, &failed) || failed.ExitCode() != 1) {
		e.Fatalf("netdra import -f %s: %v\n%s", file, err, report.String())
	}
	if len(input) > 0 {
		e.Logf("%s\n%s", report.String(), made.String())
	}
	return made.String()
}

// applyOnServer applies objects of any namespaces.
func (e *env) applyOnServer(objects string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := e.cluster.Command(ctx, append([]string{"kubectl", "apply", "-f", "-"}, flags...)...)
	var output strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(objects), &output, &output
	err := e.cluster.Run(cmd)
	return output.String(), err
}
