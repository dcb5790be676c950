package sriov

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
	"github.com/dra-networking/dra-network-driver/e2e/internal/nad"
)

const (
	// multusProgram is the real Multus, in the version specified in e2e/multus/go.mod. "make sriov-multus" builds it
	// into the directory that is shared with the machine. If EXTRA_CNI_DIR contains Multus, that version takes
	// precedence.
	multusProgram = "/share/multus"
	multusPlugin  = "/opt/cni/bin/multus"
	multusLog     = "/var/log/multus.log"
)

// multus installs Multus as the node's network plugin until the end of the part.
func (c *cluster) multus() {
	c.Helper()
	if _, err := os.Stat(multusPlugin); err != nil { // not installed from EXTRA_CNI_DIR
		program, err := os.ReadFile(multusProgram)
		if err != nil {
			c.Skipf("needs %s; use make sriov-multus: %v", multusProgram, err)
		}
		c.must(os.WriteFile(multusPlugin, program, 0o755)) //nolint:gosec // a program
	}
	c.Apply(nad.Definition)
	const folder = "/etc/cni/net.d"
	pods, err := os.ReadFile(filepath.Join(folder, "10-lab.conflist"))
	c.must(err)
	configuration := filepath.Join(folder, "00-multus.conf")
	c.must(os.WriteFile(configuration+".new", []byte(nad.Multus(os.Getenv("KUBECONFIG"), multusLog, pods)), 0o600))
	c.must(os.Rename(configuration+".new", configuration))
	c.Cleanup(func() { c.must(errors.Join(os.Remove(configuration), os.RemoveAll("/var/lib/cni/multus"))) })
	c.Cleanup(func() {
		if log, err := os.ReadFile(multusLog); c.Failed() && err == nil {
			c.Logf("the end of Multus' log:\n%s", log[max(0, len(log)-8000):])
		}
	})
	attempt := 0
	c.Until("runtime that uses Multus", func(ctx context.Context) error {
		attempt++
		name := fmt.Sprintf("probe-%d", attempt)
		c.withClaim(name, "", "")
		c.Ready(name)
		networks, err := c.networks(ctx, name)
		c.Remove(name)
		c.Gone(name)
		if err == nil && len(networks) == 0 {
			err = errors.New("a pod has no " + nad.Status)
		}
		return err
	})
}

// attachedNetwork is a network in the status that Multus reports for a pod.
type attachedNetwork struct {
	Name      string `json:"name"`
	Interface string `json:"interface"`
	Device    struct {
		PCI struct {
			Address string `json:"pci-address"`
		} `json:"pci"`
	} `json:"device-info"`
}

// networks returns a pod's networks as reported by Multus.
func (c *cluster) networks(ctx context.Context, pod string) (networks []attachedNetwork, err error) {
	found, err := c.Client.CoreV1().Pods(c.Namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil || found.Annotations[nad.Status] == "" {
		return nil, err
	}
	return networks, json.Unmarshal([]byte(found.Annotations[nad.Status]), &networks)
}

// withClaim creates a pod that uses a user-created claim and a Multus network; either may be empty.
func (c *cluster) withClaim(name, claim, network string) {
	c.Helper()
	claims, used, annotations := "", "", ""
	if claim != "" {
		claims = "\n  resourceClaims: [{name: net, resourceClaimName: " + claim + "}]"
		used = "\n    resources: {claims: [{name: net}]}"
		annotations = fmt.Sprintf(", annotations: {k8s.v1.cni.cncf.io/networks: %s}", network)
	}
	c.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s%[6]s}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false%[2]s
  containers:
  - name: main
    image: localhost/toolbox:e2e
    imagePullPolicy: Never
    command: [sh, -c, exec sleep 86400]
    env: [{name: %[3]s, value: %[4]s}]%[5]s
`, name, claims, kubenode.Observed, c.Mark(name), used, annotations))
}

// claimedFunction creates a claim for a virtual function, and the network through which Multus attaches the function.
// The network is specific to the claim, because Multus 4.2.3 identifies devices by claim name.
func (c *cluster) claimedFunction(name, class string) {
	c.Helper()
	c.Apply(fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %[1]s, namespace: %[2]s}
spec: {devices: {requests: [{name: r0, exactly: {deviceClassName: %[3]s}}]}}
`, name, c.Namespace, class) + "---" + nad.Network(c.Namespace, "of-"+name, name, `{"cniVersion": "1.0.0",
  "name": "fast", "type": "sriov", "vlan": 77, "trust": "on", "spoofchk": "off",
  "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}}`))
}

// TestClusterMultus is separate from TestClusterPods because a call to Multus takes seconds if all code is emulated.
func TestClusterMultus(t *testing.T) {
	c := newCluster(t, 4)
	c.Apply(c.named(`
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: pf0-vfs}
spec:
  selector:
    cel: >-
      device.attributes["dra.networking"].type == "vf" &&
      device.attributes["dra.networking"].pfName == "PF0"
  exposure:
    resourceName: example.com/sriov_vf
    supportedCNIPlugins: [{name: sriov, exclusive: true}]
`))
	c.part("multus", (*cluster).attachesByMultus)
}

// attachesByMultus checks that the scheduler chooses virtual functions, and that the real Multus attaches them with the
// plugin "sriov" and a NetworkAttachmentDefinition. It also checks that the driver reserves the functions in the
// meantime and restores them, even if the driver was killed in between. At the same time, a pod whose topology is
// attached by the driver itself uses another function on the same NIC.
func (c *cluster) attachesByMultus() {
	c.multus()
	c.topology("kept", c.named(`
- name: nic
  type: sriov
  selector: {cel: 'device.attributes["dra.networking"].pfName == "PF0"'}
  config: {vlan: 78, ipam: {type: host-local, subnet: 10.78.0.0/24}}`), "nic")
	c.Apply(c.named(`
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: elsewhere}
spec:
  attachment: External
  steps:
  - {name: vf, type: sriov, selector: {cel: 'device.attributes["dra.networking"].pfName == "PF0"'}}
`))
	c.Until("DeviceClass of elsewhere", func(ctx context.Context) error {
		_, err := c.Client.ResourceV1().DeviceClasses().Get(ctx, "elsewhere-vf", metav1.GetOptions{})
		return err
	})
	for _, name := range []string{"a", "b"} {
		c.claimedFunction(name, "elsewhere-vf")
		c.withClaim(name, name, "of-"+name)
	}
	c.create("kept", "own")
	c.Ready("a", "b", "own")
	for _, name := range []string{"a", "b"} {
		c.attachedByMultus(name)
	}
	want := "vlan 78 qos 0 spoofchk true trust false rate 0"
	if have := c.settings(pf0, c.index("own", 0)); have != want {
		c.Errorf("settings of the function attached by the driver = %q, want %q", have, want)
	}
	a, b := c.inside("a"), c.inside("b")
	a.Reaches(b, ipv4(b, "net1"))

	c.KillDriver()
	c.Remove("a")
	c.Gone("a")
	c.DriverReady()
	a = c.inside("own") // the pod is on another VLAN, so it cannot reach b; b still has all its settings
	if diff := cmp.Diff([]string{"net1 device mtu 1500 up true"}, a.Links()); diff != "" {
		c.Errorf("links of the pod attached by the driver (-want +have):\n%s", diff)
	}
	c.attachedByMultus("b")
	c.withClaim("next", "a", "of-a")
	c.Ready("next")
	c.attachedByMultus("next")
}

// attachedByMultus checks that a pod has the virtual function that was allocated to its claim, with the settings of the
// network. It also checks that Multus reports this function, and that the function's device information file exists.
func (c *cluster) attachedByMultus(pod string) {
	c.Helper()
	networks, err := c.networks(c.Context(), pod)
	c.must(err)
	found, err := c.Client.CoreV1().Pods(c.Namespace).Get(c.Context(), pod, metav1.GetOptions{})
	c.must(err)
	claim, err := c.Client.ResourceV1().ResourceClaims(c.Namespace).Get(c.Context(),
		*found.Spec.ResourceClaims[0].ResourceClaimName, metav1.GetOptions{})
	c.must(err)
	index := c.functionIndex(claim.Status.Allocation.Devices.Results[0].Device)
	address := c.VF(pf0, index)
	want := []attachedNetwork{{Name: c.Namespace + "/of-" + claim.Name, Interface: "net1"}}
	want[0].Device.PCI.Address = address
	if len(networks) == 0 {
		c.Fatalf("pod %s has an empty %s annotation", pod, nad.Status)
	}
	if diff := cmp.Diff(want, networks[1:]); diff != "" { // the first is the cluster's network
		c.Errorf("networks of pod %s as reported by Multus (-want +have):\n%s", pod, diff)
	}
	if have, want := c.settings(pf0, index), "vlan 77 qos 0 spoofchk false trust true rate 0"; have != want {
		c.Errorf("settings of the function of pod %s = %q, want %q", pod, have, want)
	}
	if _, err := testbench.FindLink(address); err == nil {
		c.Errorf("the function of pod %s is on the host, want it in the pod", pod)
	}
	if diff := cmp.Diff([]string{"net1 device mtu 1500 up true"}, c.inside(pod).Links()); diff != "" {
		c.Errorf("links of pod %s (-want +have):\n%s", pod, diff)
	}
	infos := c.glob("/var/run/k8s.cni.cncf.io/devinfo/dp/*")
	if !strings.Contains(strings.Join(infos, " "), address) {
		c.Errorf("no device info contains %s, got %q", address, infos)
	}
	c.Until("claim "+claim.Name+" that reports its device as reserved", func(ctx context.Context) error {
		claim, err := c.Client.ResourceV1().ResourceClaims(c.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, device := range claim.Status.Devices {
			for _, condition := range device.Conditions {
				if condition.Reason == "Reserved" {
					return nil
				}
			}
		}
		return fmt.Errorf("the status of the claim has %d devices", len(claim.Status.Devices))
	})
}
