package remote

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// driverPods returns one driver pod per node, sorted by node. If node is empty, it returns the pods on all nodes. If
// there are several pods on a node, for example because one is terminating, it returns the newest running pod or, if
// none is running, the newest pod.
func (c *Cluster) driverPods(ctx context.Context, node string) ([]corev1.Pod, error) {
	options := metav1.ListOptions{LabelSelector: podSelector}
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	list, err := c.Core.Pods(c.DriverNamespace).List(ctx, options)
	if err == nil && len(list.Items) == 0 && node != "" { // a pod that cannot be scheduled has no node yet
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", "").String()
		list, err = c.Core.Pods(c.DriverNamespace).List(ctx, options)
	}
	if err != nil {
		return nil, c.denied("list the driver's pods", err)
	}
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return nodeOf(&pod) == "" || node != "" && nodeOf(&pod) != node
	})
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(nodeOf(&a), nodeOf(&b)), cmp.Compare(startOrder(&a), startOrder(&b)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
	})
	return slices.CompactFunc(pods, func(a, b corev1.Pod) bool { return nodeOf(&a) == nodeOf(&b) }), nil
}

// nodeOf returns the node for a DaemonSet pod. If the pod has not been scheduled, only its affinity contains the node.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		return selectedNode(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	return ""
}

// selectedNode returns the node that a selector selects by name; "" if there is none.
func selectedNode(selector *corev1.NodeSelector) string {
	if selector != nil {
		for _, term := range selector.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
					return field.Values[0]
				}
			}
		}
	}
	return ""
}

func isRunning(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

func startOrder(pod *corev1.Pod) int {
	if isRunning(pod) {
		return 0
	}
	return 1
}

// whyNotRunning returns an error with the reason why a driver pod is not running; nil if it is running.
func (c *Cluster) whyNotRunning(pod *corev1.Pod) error {
	if isRunning(pod) {
		return nil
	}
	cause := cmp.Or(strings.TrimSuffix(waitingFor(pod), "."), string(pod.Status.Phase), "its state is unknown")
	return fmt.Errorf("cannot query node %s: the driver's pod %s/%s is not running: %s; for details, run "+
		"\"kubectl -n %s describe pod %s\"", nodeOf(pod), pod.Namespace, pod.Name, printer.Sanitize(cause, false),
		pod.Namespace, pod.Name)
}

// waitingFor returns the reason why a pod is waiting, as reported by the scheduler or the kubelet; "" if there is none.
func waitingFor(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch state := status.State; {
		case state.Waiting != nil && state.Waiting.Reason != "PodInitializing":
			return fmt.Sprintf("container %s waits: %s", status.Name,
				joined(state.Waiting.Reason, state.Waiting.Message))
		case state.Terminated != nil && state.Terminated.ExitCode != 0:
			return fmt.Sprintf("container %s has failed with exit status %d: %s", status.Name, state.Terminated.ExitCode,
				joined(state.Terminated.Reason, state.Terminated.Message))
		}
	}
	return joined(pod.Status.Reason, pod.Status.Message)
}

// joined returns "reason, message". If one of them is empty, it returns the other.
func joined(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ", " + message
}
