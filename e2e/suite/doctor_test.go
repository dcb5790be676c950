package suite

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// doctor reports no findings on a healthy node, with or without pods, and reports problems if there are any.
func TestDoctor(t *testing.T) {
	e := newEnv(t, "doctor")
	e.veth("do0")
	e.apply(documents(expose("do0", "macvlan", true, "do0"), topology("do0", `
- name: link
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "do0"'}
  config: {mode: bridge, ipam: {type: host-local, subnet: 10.158.0.0/24}}`), claimTemplate("do0", "do0-link")))
	e.offer("do0")
	e.create(pod("one", "do0"))
	e.ready("one")
	e.healthy("a node with a pod")

	for command, want := range map[string][]string{
		"devices": {"do0", "in use", "(pod doctor/one)"}, "claims": {"doctor/one-net-", "attached", "net1 10.158.0."},
		"release --orphans": {"there are no orphaned files"},
	} {
		if output, err := e.netdra(strings.Fields(command)...); err != nil || !containsAll(output, want) {
			t.Errorf("netdra %s returned %v\n%s", command, err, output)
		}
	}

	const stray = "/run/cdi/dra.networking-00000000-0000-0000-0000-000000000000.json"
	e.onNode("touch", stray)
	e.onNode("mv", "/opt/cni/bin/macvlan", "/opt/cni/bin/away")
	report, err := e.doctor()
	e.onNode("mv", "/opt/cni/bin/away", "/opt/cni/bin/macvlan")
	if err == nil || !containsAll(report, []string{"✗ CNI plugin macvlan is not installed", stray, "1 fault"}) {
		t.Errorf("on a node without macvlan, netdra doctor returned %v\n%s", err, report)
	}
	if output, err := e.netdra("release", "--orphans", "--all"); err != nil ||
		!containsAll(output, []string{"CDI spec", stray[len("/run"):], "removed"}) {
		t.Errorf("netdra release --orphans returned %v\n%s", err, output)
	}
	e.healthy("with the missing part restored and the orphans removed, the node")
	e.inPod("one", "ip", "addr", "show", "net1")
	e.deleting("one")
	e.gone("one")
	e.healthy("the node afterwards")
}

// healthy waits until doctor reports no findings. The driver checks plugins once a minute and when devices change, so
// its report on policies may be slightly out of date: it may predate the installation of a plugin or the removal of
// another test's link.
func (e *env) healthy(what string) {
	e.Helper()
	e.eventually(what+" is healthy", func(context.Context) (bool, error) {
		report, err := e.doctor()
		return err == nil &&
			strings.Contains(report, "this node is healthy: 0 faults, 0 risks"), fmt.Errorf("%w\n%s", err, report)
	})
}

// doctor runs netdra doctor on the node.
func (e *env) doctor() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	program, err := filepath.Abs("../../bin/netdra")
	if err != nil {
		return "", err
	}
	cmd := e.cluster.Command(ctx, program, "doctor")
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	err = e.cluster.Run(cmd)
	return output.String(), err
}

// onNode runs a command on the node.
func (e *env) onNode(args ...string) {
	e.Helper()
	if _, err := e.cluster.Exec(context.Background(), args...); err != nil {
		e.Fatal(err)
	}
}
