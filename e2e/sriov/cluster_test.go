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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// clusterPatience is how long anything may take for which kubelet and containerd have to do something. A pod takes ten seconds
// here, and waits for the others.
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

// part gives a subtest a namespace of its own, and expects at its end that nothing is left of it: that every virtual function is
// on the host as it was, and offered.
func (c *cluster) part(name string, do func(*cluster)) {
	c.Helper()
	c.Run(name, func(t *testing.T) {
		own := *c
		own.bench, own.namespace, own.explained = &bench{T: t}, strings.ReplaceAll(name, " ", "-"), new(bool)
		own.driverReady()
		own.before = own.card()
		own.apply(fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", own.namespace))
		own.until("default ServiceAccount", func(ctx context.Context) error {
			_, err := own.client.CoreV1().ServiceAccounts(own.namespace).Get(ctx, "default", metav1.GetOptions{})
			return err
		})
		start := time.Now()
		do(&own)
		own.removeAll()
		own.until("functions that are as they were, and nothing that the driver still has", func(ctx context.Context) error {
			return errors.Join(own.different(own.before), own.forgotten(ctx))
		})
		own.until("devices that all can be had", func(ctx context.Context) error {
			devices, err := own.offered(ctx)
			for device, taint := range devices {
				if taint != "" {
					err = errors.Join(err, fmt.Errorf("%s is %s", device, taint))
				}
			}
			return err
		})
		own.empty()
		own.Logf("took %s", time.Since(start).Round(time.Second))
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

func get(ctx context.Context, address string, dial func(context.Context, string, string) (net.Conn, error)) (string, error) {
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
func (c *cluster) until(what string, look func(context.Context) error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := look(ctx)
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
		c.Logf("event of %s: %s: %s", events.Items[i].InvolvedObject.Name, events.Items[i].Reason, events.Items[i].Message)
	}
	pods, listErr := c.client.CoreV1().Pods(driverNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + driverName})
	for i := range pods.Items {
		lines := int64(60)
		logs, logErr := c.client.CoreV1().Pods(driverNamespace).GetLogs(pods.Items[i].Name, &corev1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
		c.Logf("the driver's log: %v\n%s", logErr, logs)
	}
	if err := errors.Join(err, listErr); err != nil {
		c.Log(err)
	}
}

// apply applies documents of YAML, and deletes them at the end of the test.
func (c *cluster) apply(documents string) {
	c.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(documents), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			c.Fatalf("%v:\n%s", err, documents)
		}
		if object.Object == nil {
			continue
		}
		if kind := object.GetKind(); kind == "Pod" || kind == "ResourceClaimTemplate" {
			object.SetNamespace(c.namespace)
		}
		c.must(c.objects.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership))
		c.Cleanup(func() {
			if err := client.IgnoreNotFound(c.objects.Delete(context.Background(), object)); err != nil {
				c.Error(err)
			}
		})
	}
}

// topology makes a topology and a claim template, both called so, with a request for each class.
func (c *cluster) topology(name, steps string, roots ...string) {
	c.Helper()
	requests := ""
	for i, root := range roots {
		requests += fmt.Sprintf("\n      - {name: r%d, exactly: {deviceClassName: %s-%s}}", i, name, root)
	}
	c.apply(fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: %[1]s}
spec:
  steps:%[2]s
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s}
spec:
  spec:
    devices:
      requests:%[3]s
`, name, strings.ReplaceAll("\n"+strings.TrimSpace(steps), "\n", "\n  "), requests))
	for _, root := range roots {
		c.until("DeviceClass of "+name, func(ctx context.Context) error {
			_, err := c.client.ResourceV1().DeviceClasses().Get(ctx, name+"-"+root, metav1.GetOptions{})
			return err
		})
	}
}

// create makes pods, each with a claim from a template.
func (c *cluster) create(template string, names ...string) {
	c.Helper()
	c.createWith("exec sleep 86400", template, names...)
}

// createWith is create for pods whose container runs a shell's command.
func (c *cluster) createWith(script, template string, names ...string) {
	c.Helper()
	for _, name := range names {
		c.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  resourceClaims: [{name: net, resourceClaimTemplateName: %[2]s}]
  containers:
  - name: main
    image: localhost/toolbox:e2e
    imagePullPolicy: Never
    command: [sh, -c, %[5]q]
    env: [{name: %[3]s, value: %[4]s/%[1]s}]
    resources: {claims: [{name: net}]}
`, name, template, observed, c.namespace, script))
	}
}

// ready waits until pods are Ready.
func (c *cluster) ready(names ...string) {
	c.Helper()
	for _, name := range names {
		c.until("pod "+name+" that is Ready", func(ctx context.Context) error {
			pod, err := c.client.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
				return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
			}) {
				return fmt.Errorf("it is %s", pod.Status.Phase)
			}
			return nil
		})
	}
}

// waits waits until the scheduler has said that it finds no device for a pod.
func (c *cluster) waits(name string) {
	c.Helper()
	c.until("pod "+name+" that has to wait", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != "" {
			c.Fatalf("pod %s was scheduled", name)
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && strings.Contains(condition.Message, "cannot allocate all claims") {
				return nil
			}
		}
		return errStill
	})
}

// delete begins to delete pods; gone waits until they are.
func (c *cluster) delete(names ...string) {
	c.Helper()
	for _, name := range names {
		c.must(c.client.CoreV1().Pods(c.namespace).Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}

func (c *cluster) gone(names ...string) {
	c.Helper()
	for _, name := range names {
		c.until("end of pod "+name, func(ctx context.Context) error {
			_, err := c.client.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errStill, err)
		})
	}
}

// removeAll deletes all pods of the test, and waits until they are gone.
func (c *cluster) removeAll() {
	c.Helper()
	pods, err := c.client.CoreV1().Pods(c.namespace).List(context.Background(), metav1.ListOptions{})
	c.must(err)
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
		if err := c.client.CoreV1().Pods(c.namespace).Delete(context.Background(), pods.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			c.Error(err)
		}
	}
	c.gone(names...)
}

// devices are what was allocated to a pod, in the order of its requests.
func (c *cluster) devices(pod string) []string {
	c.Helper()
	claims, err := c.client.ResourceV1().ResourceClaims(c.namespace).List(context.Background(), metav1.ListOptions{})
	c.must(err)
	var names []string
	for i := range claims.Items {
		if owner := metav1.GetControllerOf(&claims.Items[i]); owner == nil || owner.Name != pod || claims.Items[i].Status.Allocation == nil {
			continue
		}
		for _, result := range claims.Items[i].Status.Allocation.Devices.Results {
			names = append(names, result.Device)
		}
	}
	return names
}

// index is the number of the virtual function that a pod got for a request.
func (c *cluster) index(pod string, request int) int {
	c.Helper()
	devices := c.devices(pod)
	if len(devices) <= request {
		c.Fatalf("pod %s has the devices %q", pod, devices)
	}
	at := strings.LastIndexByte(devices[request], 'v')
	index := -1
	_, err := fmt.Sscan(devices[request][at+1:], &index)
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
