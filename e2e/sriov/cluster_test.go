package sriov

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// clusterPatience is the time limit for operations that involve the kubelet and containerd. On the emulated machine, a
// pod takes ten seconds to start, and must wait for other pods.
const clusterPatience = 5 * time.Minute

// cluster represents the machine as a Kubernetes node with the driver. Tests use it one after the other.
type cluster struct {
	*bench
	*kubenode.Node
	// before is the state that the virtual functions must have at the end of each part.
	before []string
	// annotations are the annotations for pods to be created, in YAML.
	annotations string
}

// newCluster creates virtual functions on the physical functions pf0 and pf1, and waits for the driver.
func newCluster(t *testing.T, vfs int) *cluster {
	t.Helper()
	node := kubenode.Join(t, clusterPatience, "use make sriov-test")
	c := &cluster{bench: newBench(t, vfs), Node: node}
	c.DriverReady()
	return c
}

// part runs a subtest in its own namespace. Afterwards, it checks that the subtest has left nothing behind, and that
// every virtual function is on the host, in its initial state, and published.
func (c *cluster) part(name string, do func(*cluster)) {
	c.Helper()
	c.Run(name, func(t *testing.T) {
		cluster := *c
		cluster.bench, cluster.Node = &bench{c.With(t)}, c.Part(t, strings.ReplaceAll(name, " ", "-"))
		cluster.DriverReady()
		cluster.before = cluster.functionState()
		cluster.Apply(fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", cluster.Namespace))
		cluster.Until("default ServiceAccount", func(ctx context.Context) error {
			_, err := cluster.Client.CoreV1().ServiceAccounts(cluster.Namespace).Get(ctx, "default",
				metav1.GetOptions{})
			return err
		})
		start := time.Now()
		do(&cluster)
		cluster.RemoveAll()
		cluster.Until("functions that are as they were, and nothing that the driver still has",
			func(ctx context.Context) error {
				return errors.Join(cluster.different(cluster.before), kubenode.Forgotten(ctx))
			})
		cluster.Until("devices that all can be had", func(ctx context.Context) error {
			devices, err := cluster.Offered(ctx)
			for device, taint := range devices {
				if taint != "" {
					err = errors.Join(err, fmt.Errorf("%s is %s", device, taint))
				}
			}
			return err
		})
		cluster.empty()
		cluster.Logf("the part took %s", time.Since(start).Round(time.Second))
	})
}

// different returns an error that describes how the state of the virtual functions differs from an earlier state.
func (c *cluster) different(before []string) error {
	if now := c.functionState(); !slices.Equal(before, now) {
		return fmt.Errorf("before\n%s\nnow\n%s", strings.Join(before, "\n"), strings.Join(now, "\n"))
	}
	return nil
}

// devices returns the devices allocated to a pod, in order of its requests.
func (c *cluster) devices(pod string) []string {
	c.Helper()
	claims, err := c.Client.ResourceV1().ResourceClaims(c.Namespace).List(context.Background(), metav1.ListOptions{})
	c.must(err)
	var names []string
	for i := range claims.Items {
		if owner := metav1.GetControllerOf(&claims.Items[i]); owner == nil || owner.Name != pod ||
			claims.Items[i].Status.Allocation == nil {
			continue
		}
		for _, result := range claims.Items[i].Status.Allocation.Devices.Results {
			names = append(names, result.Device)
		}
	}
	return names
}

// attached waits until the status of a pod's claim reports that all devices are attached.
func (c *cluster) attached(pod string) {
	c.Helper()
	c.Until("status of the claim of pod "+pod, func(ctx context.Context) error {
		claims, err := c.Client.ResourceV1().ResourceClaims(c.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for i := range claims.Items {
			if owner := metav1.GetControllerOf(&claims.Items[i]); owner == nil || owner.Name != pod {
				continue
			}
			for _, device := range claims.Items[i].Status.Devices {
				if meta.IsStatusConditionTrue(device.Conditions, "Ready") {
					ready++
				}
			}
		}
		if want := len(c.devices(pod)); ready != want {
			return fmt.Errorf("%d of %d devices are attached", ready, want)
		}
		return nil
	})
}

// index returns the number of the virtual function allocated to a pod for the given request.
func (c *cluster) index(pod string, request int) int {
	c.Helper()
	devices := c.devices(pod)
	if len(devices) <= request {
		c.Fatalf("pod %s has too few devices: %q", pod, devices)
	}
	return c.functionIndex(devices[request])
}

// functionIndex returns the number of the virtual function published under the given name.
func (c *cluster) functionIndex(device string) int {
	c.Helper()
	index := -1
	_, err := fmt.Sscan(device[strings.LastIndexByte(device, 'v')+1:], &index)
	c.must(err)
	return index
}

// slices returns the slices published for the node.
func (c *cluster) slices(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	list, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// inside returns a pod's network namespace, which it looks up through a process in the pod's container.
func (c *cluster) inside(name string) *pod {
	c.Helper()
	return c.PodAt(filepath.Join(c.process(name), "ns/net"))
}

// process returns the /proc directory of a pod's main process.
func (c *cluster) process(name string) string {
	c.Helper()
	dir, err := c.Process(name)
	c.must(err)
	return dir
}
