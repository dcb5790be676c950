package kubenode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/internal/process"
)

// Observed is the environment variable that identifies the processes of a pod. Its value is returned by Mark.
const Observed = "POD_OF_TEST"

// Mark returns the value of the variable Observed for the containers of a pod.
func (n *Node) Mark(pod string) string { return n.Namespace + "/" + pod }

// Process returns the /proc directory of a process in a pod's container. The error is fs.ErrNotExist if there is no
// such process. If there are several, Process may return any of them, because they are all in the pod's namespaces.
// Processes that run before the container's program is executed do not have the variable yet.
func (n *Node) Process(pod string) (string, error) {
	found, err := process.Find(process.HasVariable(Observed, n.Mark(pod)))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("pod %s has no process: %w", pod, fs.ErrNotExist)
	}
	return fmt.Sprintf("/proc/%d", found[0].PID), nil
}

// Ready waits until pods are Ready.
func (n *Node) Ready(names ...string) {
	n.t.Helper()
	for _, name := range names {
		n.Until("pod "+name+" that is Ready", func(ctx context.Context) error {
			pod, err := n.Client.CoreV1().Pods(n.Namespace).Get(ctx, name, metav1.GetOptions{})
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

// Waits waits until the scheduler reports that no device is available for a pod.
func (n *Node) Waits(name string) {
	n.t.Helper()
	n.Until("pod "+name+" that has to wait", func(ctx context.Context) error {
		pod, err := n.Client.CoreV1().Pods(n.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != "" {
			n.t.Fatalf("pod %s was scheduled, want it to remain pending", name)
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled &&
				strings.Contains(condition.Message, "cannot allocate all claims") {
				return nil
			}
		}
		return ErrStill
	})
}

// Event waits for an event for a pod whose message contains the given text.
func (n *Node) Event(pod, text string) {
	n.t.Helper()
	n.Until(fmt.Sprintf("event of pod %s with %q", pod, text), func(ctx context.Context) error {
		events, err := n.Client.CoreV1().Events(n.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(event corev1.Event) bool {
			return event.InvolvedObject.Name == pod && strings.Contains(event.Message, text)
		}) {
			return fmt.Errorf("it is none of %d events", len(events.Items))
		}
		return nil
	})
}

// Remove deletes pods without waiting; call Gone to wait until they no longer exist.
func (n *Node) Remove(names ...string) {
	n.t.Helper()
	for _, name := range names {
		n.must(n.Client.CoreV1().Pods(n.Namespace).Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}

// Gone waits until deleted pods no longer exist.
func (n *Node) Gone(names ...string) {
	n.t.Helper()
	for _, name := range names {
		n.Until("end of pod "+name, func(ctx context.Context) error {
			_, err := n.Client.CoreV1().Pods(n.Namespace).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(ErrStill, err)
		})
	}
}

// RemoveAll deletes all pods in the namespace and waits until they no longer exist.
func (n *Node) RemoveAll() {
	n.t.Helper()
	pods, err := n.Client.CoreV1().Pods(n.Namespace).List(context.Background(), metav1.ListOptions{})
	n.must(err)
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
		if err := n.Client.CoreV1().Pods(n.Namespace).Delete(context.Background(), pods.Items[i].Name,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			n.t.Error(err)
		}
	}
	n.Gone(names...)
}
