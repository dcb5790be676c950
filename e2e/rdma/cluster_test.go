package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// clusterPatience is how long anything may take for which kubelet and containerd have to do something.
const clusterPatience = 5 * time.Minute

// observed is the environment variable by which the processes of pods are found.
const observed = "POD_OF_TEST"

// cluster is the machine as the node of a Kubernetes with the driver.
type cluster struct {
	*bench
	objects client.Client
}

func newCluster(t *testing.T, mode string) *cluster {
	t.Helper()
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("needs a machine that is a node of Kubernetes: use make rdma-test")
	}
	c := &cluster{bench: newBench(t, mode)}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	c.must(err)
	log.SetLogger(logr.Discard()) // or that library complains
	c.objects, err = client.New(config, client.Options{})
	c.must(err)
	return c
}

// kubectl returns what the command prints. It takes seconds where all code is emulated, so apply does not use it.
func (c *cluster) kubectl(args ...string) string {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
	defer cancel()
	output, err := exec.CommandContext(ctx, "kubectl", args...).CombinedOutput()
	if err != nil {
		c.Errorf("kubectl %q: %v: %s", args, err, output)
	}
	return string(output)
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

// explain shows what a person would look at.
func (c *cluster) explain() {
	c.Helper()
	c.Log(c.kubectl("get", "events", "--all-namespaces"))
	c.Log(c.kubectl("get", "resourceslices,resourceclaims,pods", "--all-namespaces", "-o", "yaml"))
	c.Log(c.kubectl("-n", "dra-network", "logs", "daemonset/dra-network-driver", "--tail", "60"))
}

// apply applies documents of YAML in the namespace "default", and deletes the objects at the end of the test.
func (c *cluster) apply(documents string) {
	c.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(documents), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return
		}
		c.must(err)
		if kind := object.GetKind(); kind == "Pod" || kind == "ResourceClaimTemplate" {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		c.until("admitted "+object.GetKind(), func(ctx context.Context) error { // the webhook may have to start
			err := c.objects.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()),
				client.FieldOwner("test"), client.ForceOwnership)
			if apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) {
				c.must(err)
			}
			return err
		})
		c.Cleanup(func() { c.delete(object) })
	}
}

// delete deletes an object and waits until it has gone.
func (c *cluster) delete(object client.Object) {
	c.Helper()
	c.until("end of "+object.GetName(), func(ctx context.Context) error {
		switch err := c.objects.Delete(ctx, object); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		default:
			return errors.New("it is still there")
		}
	})
}

// pod makes a pod with a claim from a template, and returns its network namespace when it is Ready. Its container can
// run the machine's programs, such as /usr/bin/rping.
func (c *cluster) pod(name, template string) *place {
	c.Helper()
	start := time.Now()
	c.podObject(name, template)
	c.until("pod "+name+" that is Ready", func(ctx context.Context) error { return c.isReady(ctx, name) })
	p := &place{bench: c.bench}
	c.until("process of pod "+name, func(context.Context) (err error) {
		p.path, err = namespaceOf(name)
		return err
	})
	c.Logf("pod %s runs after %s", name, time.Since(start).Round(time.Second))
	return p
}

// podObject makes the pod, and waits for nothing.
func (c *cluster) podObject(name, template string) {
	c.Helper()
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
    command: [/bin/sleep, "86400"]
    env: [{name: %[3]s, value: %[1]s}]
    resources: {claims: [{name: net}]}
    volumeMounts:
    - {name: programs, mountPath: /usr, readOnly: true}
    - {name: libraries, mountPath: /lib, readOnly: true}
    - {name: loader, mountPath: /lib64, readOnly: true}
    - {name: providers, mountPath: /etc/libibverbs.d, readOnly: true}
  volumes:
  - {name: programs, hostPath: {path: /usr}}
  - {name: libraries, hostPath: {path: /usr/lib}}
  - {name: loader, hostPath: {path: /usr/lib64}}
  - {name: providers, hostPath: {path: /etc/libibverbs.d}}
`, name, template, observed))
}

// namespaceOf finds a pod's network namespace by a process of its container.
func namespaceOf(pod string) (string, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && strings.Contains("\x00"+string(environment), "\x00"+observed+"="+pod+"\x00") {
			return filepath.Join(dir, "ns/net"), nil
		}
	}
	return "", errors.Join(err, errors.New("no process has its environment"))
}

// isReady says why a pod is not Ready.
func (c *cluster) isReady(ctx context.Context, name string) error {
	pod := &corev1.Pod{}
	if err := c.objects.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, pod); err != nil {
		return err
	}
	if !slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	}) {
		return fmt.Errorf("it is %s", pod.Status.Phase)
	}
	return nil
}

// A pod gets a virtual function on a node with RDMA as on any other, and gives it back.
func TestClusterPodWithFunction(t *testing.T) {
	c := newCluster(t, "")
	function := c.functions(1)[0]
	name := c.linkOf(function)
	c.apply(`
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: functions}
spec:
  priority: 200
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  action: expose
  exposure:
    allowMultipleAllocations: false
    supportedCNIPlugins: [{name: host-device, exclusive: true}]
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: function}
spec:
  steps:
  - name: nic
    type: host-device
    selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
    config: {ipam: {type: host-local, subnet: 10.8.0.0/24}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: function}
spec:
  spec:
    devices:
      requests:
      - {name: nic, exactly: {deviceClassName: function-nic}}
`)
	pod := c.pod("user", "function")
	var address string
	pod.inside(func() error {
		link, err := netlink.LinkByName("net1")
		if err == nil {
			address = link.Attrs().ParentDev
		}
		return err
	})
	if address != function {
		c.Errorf("net1 of the pod is the link of %q, want %s", address, function)
	}
	if text := c.kubectl("exec", "user", "--", "/usr/bin/ibv_devices"); !strings.Contains(text, "node GUID") {
		c.Errorf("ibv_devices prints %q in the pod", text)
	}
	c.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "user"}})
	c.eventually("function at home", func() error {
		if links, err := os.ReadDir(sysPCI(function, "net")); err != nil || len(links) != 1 {
			return errors.Join(err, fmt.Errorf("it has the links %v", links))
		}
		return nil
	})
	if diff := cmp.Diff(name, c.linkOf(function)); diff != "" {
		c.Errorf("name of its link (-want +have):\n%s", diff)
	}
}
