package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
)

// waitNode waits until the Node object reports that it is ready.
func (m *Machine) waitNode(ctx context.Context) error {
	return m.waitFor(ctx, "node "+m.state.NodeName, Kubelet, func(ctx context.Context) error {
		var n corev1.Node
		if err := m.getObject(ctx, "/api/v1/nodes/"+m.state.NodeName, &n); err != nil {
			return err
		}
		return isReady(n)
	})
}

// isReady returns nil if a node is ready, and the reason otherwise.
func isReady(n corev1.Node) error {
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
			return nil
		}
		if cond.Type == corev1.NodeReady {
			return fmt.Errorf("%s: %s", cond.Reason, cond.Message)
		}
	}
	return fmt.Errorf("it has not reported yet")
}

// waitServiceAccount waits for the default service account. It may be created only after the node is ready; until then,
// the ServiceAccount admission plugin rejects all pods in the namespace.
func (m *Machine) waitServiceAccount(ctx context.Context) error {
	return m.waitFor(ctx, "the default service account", ControllerManager, func(ctx context.Context) error {
		var sa corev1.ServiceAccount
		return m.getObject(ctx, "/api/v1/namespaces/default/serviceaccounts/default", &sa)
	})
}

func (m *Machine) getObject(ctx context.Context, path string, object any) error {
	data, err := m.get(ctx, apiURL+path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, object)
}

// readOK returns the body of a response, or an error unless the status is 200.
func readOK(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, body)
	}
	return body, nil
}
