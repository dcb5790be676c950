package sriov

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// clusterPatience is how long anything may take for which kubelet and containerd have to do something. A pod takes ten
// seconds here, and waits for the others.
const clusterPatience = 3 * time.Minute

// observed is the environment variable by which the processes of pods are found.
const observed = "POD_OF_TEST"

// The driver's pod, and the program in it.
const (
	driverNamespace = "dra-network"
	driverName      = "dra-network-driver"
	driverHTTP      = "http://127.0.0.1:9680"
	driverSocket    = "/var/lib/kubelet/plugins/dra.networking/netdra.sock"
)

// cluster is the machine as the node of a Kubernetes with the driver. Tests use it one after the other.
type cluster struct {
	*bench
	client    kubernetes.Interface
	objects   client.Client
	namespace string
	// before is how the virtual functions must be at the end of a part.
	before    []string
	explained *bool
}

// newCluster gives the physical functions pf0 and pf1 virtual ones, and waits for the driver.
func newCluster(t *testing.T, vfs int) *cluster {
	t.Helper()
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("needs a machine that is a node of Kubernetes: use make sriov-test")
	}
	c := &cluster{bench: newBench(t, vfs), explained: new(bool)}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	c.must(err)
	config.QPS, config.Burst = 100, 200
	c.client, err = kubernetes.NewForConfig(config)
	c.must(err)
	log.SetLogger(logr.Discard()) // or that library complains
	c.objects, err = client.New(config, client.Options{})
	c.must(err)
	c.driverReady()
	return c
}

// part gives a subtest a namespace of its own, and expects at its end that nothing is left of it: that every virtual
// function is on the host as it was, and offered.
func (c *cluster) part(name string, do func(*cluster)) {
	c.Helper()
	c.Run(name, func(t *testing.T) {
		cluster := *c
		cluster.bench, cluster.namespace, cluster.explained = &bench{T: t}, strings.ReplaceAll(name, " ",
			"-"), new(bool)
		cluster.driverReady()
		cluster.before = cluster.card()
		cluster.apply(fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", cluster.namespace))
		cluster.until("default ServiceAccount", func(ctx context.Context) error {
			_, err := cluster.client.CoreV1().ServiceAccounts(cluster.namespace).Get(ctx, "default",
				metav1.GetOptions{})
			return err
		})
		start := time.Now()
		do(&cluster)
		cluster.removeAll()
		cluster.until("functions that are as they were, and nothing that the driver still has",
			func(ctx context.Context) error {
				return errors.Join(cluster.different(cluster.before), cluster.forgotten(ctx))
			})
		cluster.until("devices that all can be had", func(ctx context.Context) error {
			devices, err := cluster.offered(ctx)
			for device, taint := range devices {
				if taint != "" {
					err = errors.Join(err, fmt.Errorf("%s is %s", device, taint))
				}
			}
			return err
		})
		cluster.empty()
		cluster.Logf("took %s", time.Since(start).Round(time.Second))
	})
}

// different says in what the virtual functions are not as they were.
func (c *cluster) different(before []string) error {
	if now := c.card(); !slices.Equal(before, now) {
		return fmt.Errorf("before\n%s\nnow\n%s", strings.Join(before, "\n"), strings.Join(now, "\n"))
	}
	return nil
}

// forgotten says what the driver still has in its journal.
func (c *cluster) forgotten(ctx context.Context) error {
	var problems []error
	for _, kind := range []string{"claims", "sandboxes", "leftovers"} {
		body, err := askDriver(ctx, kind)
		if text := strings.TrimSpace(body); err == nil && text != "[]" && text != "{}" && text != "null" {
			err = fmt.Errorf("%s: %s", kind, text)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// askDriver reads from the driver's socket.
func askDriver(ctx context.Context, kind string) (string, error) {
	return get(ctx, "http://driver/"+kind, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", driverSocket)
	})
}

func get(
	ctx context.Context, address string, dial func(context.Context, string, string) (net.Conn, error),
) (string, error) {
	c := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // only read
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", address, response.Status, body)
	}
	return string(body), err
}

func (c *cluster) driverReady() {
	c.Helper()
	c.until("driver that is ready", func(ctx context.Context) error {
		_, err := get(ctx, driverHTTP+"/readyz", nil)
		return err
	})
}

// until repeats a look until it finds nothing wrong.
func (c *cluster) until(what string, condition func(context.Context) error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil { // that time is over says nothing
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.explain()
			c.Fatalf("no %s after %s: %v", what, clusterPatience, last)
		}
	}
}

// explain shows, once, what a person would look at.
func (c *cluster) explain() {
	if *c.explained {
		return
	}
	*c.explained = true
	ctx := context.Background()
	events, err := c.client.CoreV1().Events(c.namespace).List(ctx, metav1.ListOptions{})
	for i := range events.Items {
		c.Logf("event of %s: %s: %s", events.Items[i].InvolvedObject.Name, events.Items[i].Reason,
			events.Items[i].Message)
	}
	pods, listErr := c.client.CoreV1().Pods(driverNamespace).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + driverName})
	for i := range pods.Items {
		lines := int64(60)
		logs, logErr := c.client.CoreV1().Pods(driverNamespace).GetLogs(pods.Items[i].Name,
			&corev1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
		c.Logf("the driver's log: %v\n%s", logErr, logs)
	}
	if err := errors.Join(err, listErr); err != nil {
		c.Log(err)
	}
}

// devices are what was allocated to a pod, in the order of its requests.
func (c *cluster) devices(pod string) []string {
	c.Helper()
	claims, err := c.client.ResourceV1().ResourceClaims(c.namespace).List(context.Background(), metav1.ListOptions{})
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

// attached waits until the status of a pod's claim says that all its devices are.
func (c *cluster) attached(pod string) {
	c.Helper()
	c.until("status of the claim of pod "+pod, func(ctx context.Context) error {
		claims, err := c.client.ResourceV1().ResourceClaims(c.namespace).List(ctx, metav1.ListOptions{})
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

// index is the number of the virtual function that a pod got for a request.
func (c *cluster) index(pod string, request int) int {
	c.Helper()
	devices := c.devices(pod)
	if len(devices) <= request {
		c.Fatalf("pod %s has the devices %q", pod, devices)
	}
	position := strings.LastIndexByte(devices[request], 'v')
	index := -1
	_, err := fmt.Sscan(devices[request][position+1:], &index)
	c.must(err)
	return index
}

// slices are what is published of the node.
func (c *cluster) slices(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	list, err := c.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// offered are the published devices, with their taints.
func (c *cluster) offered(ctx context.Context) (map[string]string, error) {
	published, err := c.slices(ctx)
	devices := map[string]string{}
	for i := range published {
		for _, device := range published[i].Spec.Devices {
			taints := ""
			for _, taint := range device.Taints {
				taints += taint.Value
			}
			devices[device.Name] = taints
		}
	}
	return devices, err
}

// inside is a pod's network namespace, found by a process of its container.
func (c *cluster) inside(name string) *pod {
	c.Helper()
	return &pod{driver: &driver{bench: c.bench}, path: filepath.Join(c.process(name), "ns/net")}
}

// process is the folder in /proc of a pod's main process.
func (c *cluster) process(name string) string {
	c.Helper()
	dir, err := c.find(name)
	c.must(err)
	return dir
}

// killDriver kills the driver.
func (c *cluster) killDriver() {
	c.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	c.must(err)
	killed := false
	for _, link := range links {
		if path, err := os.Readlink(link); err != nil || filepath.Base(path) != driverName {
			continue
		}
		var pid int
		_, err := fmt.Sscan(filepath.Base(filepath.Dir(link)), &pid)
		c.must(err)
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			killed = true
		}
	}
	if !killed {
		c.Fatal("there is no driver to be killed")
	}
}
