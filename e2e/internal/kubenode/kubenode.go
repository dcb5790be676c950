// Package kubenode is for tests that run inside a virtual machine (package vm) that is a Kubernetes node with the
// driver. It creates and deletes objects, waits for conditions, finds pod processes, and starts and kills the driver.
package kubenode

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// ErrStill means that an expected change has not yet happened.
var ErrStill = errors.New("it is still as before")

// Node represents the machine for the duration of one test, which uses one namespace. If a method cannot complete, it
// fails the test immediately. Use a Node only on the test's goroutine, because testing.T can stop a test only from
// there.
type Node struct {
	Client    kubernetes.Interface
	Objects   client.Client
	Namespace string

	t         *testing.T
	patience  time.Duration
	explained bool
}

// Join returns a Node for this machine that uses the namespace "default". patience is the time limit for each operation
// performed by the kubelet and containerd. If the machine is not a Kubernetes node, Join skips the test with advice,
// which names the command to run instead.
func Join(t *testing.T, patience time.Duration, advice string) *Node {
	t.Helper()
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("needs a machine that is a node of Kubernetes: " + advice)
	}
	n := &Node{Namespace: metav1.NamespaceDefault, t: t, patience: patience}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	n.must(err)
	config.QPS, config.Burst = 100, 200
	n.Client, err = kubernetes.NewForConfig(config)
	n.must(err)
	log.SetLogger(logr.Discard()) // otherwise, the library prints a warning
	n.Objects, err = client.New(config, client.Options{})
	n.must(err)
	return n
}

// Part returns the same node for a subtest, which uses its own namespace.
func (n *Node) Part(t *testing.T, namespace string) *Node {
	part := *n
	part.t, part.Namespace, part.explained = t, namespace, false
	return &part
}

func (n *Node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// The first and the longest pause between checks. Each check consumes CPU time on a processor that may be emulated.
const (
	shortestPause = 125 * time.Millisecond
	longestPause  = time.Second
)

// Until repeats a check until it returns nil, with increasing pauses. The check is passed a context with the time
// limit, so that a hung check is aborted. On timeout, the test fails with the last error before the timeout.
func (n *Node) Until(what string, condition func(context.Context) error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), n.patience)
	defer cancel()
	var last error
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		err := condition(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil { // do not replace an error with a timeout
			last = err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			n.Explain()
			n.t.Fatalf("timed out waiting for %s after %s: %v", what, n.patience, last)
		}
	}
}

// Explain prints the information needed to diagnose a failure. Only the first call prints anything.
func (n *Node) Explain() {
	n.t.Helper()
	if n.explained {
		return
	}
	n.explained = true
	ctx := context.Background()
	events, err := n.Client.CoreV1().Events(n.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		n.t.Log(err)
		return
	}
	for i := range events.Items {
		event := &events.Items[i]
		n.t.Logf("event for %s: %s: %s", event.InvolvedObject.Name, event.Reason, event.Message)
	}
	pods, err := n.driverPods(ctx)
	for i := range pods {
		lines := int64(60)
		logs, logErr := n.Client.CoreV1().Pods(DriverNamespace).GetLogs(pods[i].Name,
			&corev1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
		n.t.Logf("the driver's log: %v\n%s", logErr, logs)
	}
	if err != nil {
		n.t.Log(err)
	}
}

// Apply applies YAML documents, and deletes the objects at the end of the test. Namespaced objects without a namespace
// are created in the node's namespace. If an object is rejected for a permanent reason, the test fails. After any other
// error, Apply retries, since the webhook and the custom resource definitions might not be ready yet.
func (n *Node) Apply(documents string) {
	n.t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(documents), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			n.t.Fatalf("%v:\n%s", err, documents)
		}
		if object.Object == nil {
			continue
		}
		if kind := object.GetKind(); kind == "Pod" || kind == "ResourceClaimTemplate" {
			object.SetNamespace(n.Namespace)
		}
		n.Until("admitted "+object.GetKind(), func(ctx context.Context) error { // the webhook might not be up yet
			err := n.Objects.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()),
				client.FieldOwner("test"), client.ForceOwnership)
			if apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) {
				n.must(err)
			}
			return err
		})
		n.t.Cleanup(func() { n.Delete(object) })
	}
}

// Delete deletes an object and waits until it no longer exists. It repeats the request, so it also deletes an object
// that another component recreates in the meantime.
func (n *Node) Delete(object client.Object) {
	n.t.Helper()
	n.Until("end of "+object.GetName(), func(ctx context.Context) error {
		switch err := n.Objects.Delete(ctx, object); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		default:
			return ErrStill
		}
	})
}
