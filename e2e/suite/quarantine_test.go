package suite

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A device cannot be restored because another link on the host has the same name. The pod can still terminate; the
// device is quarantined and is not allocated. Once the name is free again, `netdra release` restores the device.
func TestDeviceThatCannotBeCleaned(t *testing.T) {
	e := newEnv(t, "quarantine")
	e.veth("qu0")
	e.apply(documents(expose("qu0", "host-device", false, "qu0"), topology("qu0", `
- name: link
  type: host-device
  selector: {cel: 'device.attributes["dra.networking"].ifName == "qu0"'}
  config: {ipam: {type: host-local, subnet: 10.142.0.0/24}}`), claimTemplate("qu0", "qu0-link")))
	e.offer("qu0")
	before := e.state()
	e.create(pod("first", "qu0"))
	e.ready("first")
	if err := e.cluster.AddVeth("qu0", "qu0i"); err != nil {
		t.Fatal(err)
	}
	impostor := true
	remove := func() {
		if !impostor {
			return
		}
		impostor = false
		if err := e.cluster.DeleteLink("qu0"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(remove)

	start := time.Now()
	e.deleting("first")
	e.gone("first")
	t.Logf("the pod was gone %s after it was deleted", since(start))
	e.eventually("the device is tainted", func(ctx context.Context) (bool, error) {
		taints, err := e.taints(ctx, "qu0")
		return taints == "dra.networking/unavailable=quarantined:NoSchedule", fmt.Errorf("taints are %q, %w",
			taints, err)
	})
	if leftovers, err := e.netdra("release"); err != nil ||
		!containsAll(leftovers, []string{"qu0", "yes", "quarantine/first"}) {
		t.Errorf("want qu0 in the leftovers, but netdra release returned %v\n%s", err, leftovers)
	}
	if journal := e.state().Journal; !slices.ContainsFunc(journal,
		func(record string) bool { return strings.HasPrefix(record, "leftovers: ") }) {
		t.Errorf("the node's state does not include the leftover: %q", journal)
	}
	e.reports("device qu0 has been quarantined since pod", "cannot restore the settings of device qu0", "netdra "+
		"release",
		">quarantined<")
	// The scheduler does not allocate the device, and the driver rejects a claim that tolerates the taint.
	tolerating := strings.Replace(claimTemplate("tolerating", "qu0-link"), "deviceClassName: qu0-link",
		"deviceClassName: qu0-link, tolerations: [{key: dra.networking/unavailable, operator: Exists}]", 1)
	e.apply(tolerating)
	e.create(pod("second", "tolerating"))
	e.event("second", "device qu0", "has been in quarantine since", "could not be returned to the host")
	if output, err := e.netdra("release", "--all"); err == nil {
		t.Errorf("the device was released although its name was in use:\n%s", output)
	}

	remove()
	if output, err := e.netdra("release", "--all"); err != nil {
		t.Errorf("netdra release --all returned %v\n%s", err, output)
	}
	start = time.Now()
	e.ready("second")
	t.Logf("the next pod was Ready %s after the device was released", since(start))
	e.deleting("second")
	e.gone("second")
	e.asItWas(before)
}

// taints returns the taints of a published device.
func (e *env) taints(ctx context.Context, name string) (string, error) {
	slices, err := e.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var taints []string
	for _, slice := range slices.Items {
		for _, device := range slice.Spec.Devices {
			for _, taint := range device.Taints {
				if device.Name == name {
					taints = append(taints, fmt.Sprintf("%s=%s:%s", taint.Key, taint.Value, taint.Effect))
				}
			}
		}
	}
	return strings.Join(taints, " "), nil
}

// netdra runs netdra against the node's driver.
func (e *env) netdra(args ...string) (string, error) { return e.netdraOf("../../bin", args...) }

// netdraOf is like netdra, but runs the binary from the given directory.
func (e *env) netdraOf(bin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	socket := e.fileOnNode("/var/lib/kubelet/plugins/dra.networking/netdra.sock")
	output, err := exec.CommandContext(ctx, filepath.Join(bin, "netdra"),
		append(args, "--socket="+socket)...).CombinedOutput()
	return string(output), err
}
