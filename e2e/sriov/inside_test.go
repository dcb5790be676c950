package sriov

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
	"github.com/dra-networking/dra-network-driver/e2e/internal/process"
)

// TestClusterInside tests the driver on a machine that is a complete single-node cluster: the shipped components run on
// the same machine as etcd, the API server, the controller manager and the scheduler.
func TestClusterInside(t *testing.T) {
	c := newCluster(t, 2)
	if !slices.Contains(c.programs(), "kube-apiserver") {
		t.Skip("needs a machine that is a complete cluster; use make sriov-inside")
	}
	c.Apply(c.named(policies))
	c.part("one", (*cluster).isWhole)
}

// isWhole checks that all parts of the cluster run on this machine, and attaches a function to a pod.
func (c *cluster) isWhole() {
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
		"containerd", "kubelet", kubenode.DriverName, "dra-network-controller"} {
		if have := c.programs(); !slices.Contains(have, program) {
			c.Errorf("%s is not running on this machine; the running programs are %q", program, have)
		}
	}
	if diff := cmp.Diff([]string{"e2e-node Ready"}, c.nodes()); diff != "" {
		c.Errorf("nodes (-want +have):\n%s", diff)
	}
	c.oneFunction("one")
	c.create("one", "pod")
	c.Ready("pod")
	c.attached("pod")
	if diff := cmp.Diff([]string{"net1 device mtu 1500 up true"}, c.inside("pod").Links()); diff != "" {
		c.Errorf("links of the pod (-want +have):\n%s", diff)
	}
	if have, want := c.settings(pf0, c.index("pod", 0)),
		"vlan 77 qos 0 spoofchk false trust true rate 100"; have != want {
		c.Errorf("settings of the pod's function = %q, want %q", have, want)
	}
}

// programs returns a sorted list of the programs that are running on this machine.
func (c *cluster) programs() []string {
	c.Helper()
	var names []string
	all, err := process.Find()
	c.must(err)
	for _, found := range all {
		if arguments, err := found.CmdLine(); err == nil && len(arguments) > 0 { // not a kernel thread
			names = append(names, filepath.Base(arguments[0]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nodes returns the nodes in the cluster and their state.
func (c *cluster) nodes() (all []string) {
	c.Helper()
	nodes, err := c.Client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	c.must(err)
	for i := range nodes.Items {
		for _, condition := range nodes.Items[i].Status.Conditions {
			if condition.Status == corev1.ConditionTrue {
				all = append(all, fmt.Sprintf("%s %s", nodes.Items[i].Name, condition.Type))
			}
		}
	}
	return all
}
