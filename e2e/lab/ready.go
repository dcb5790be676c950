package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
)

// waitNode waits until the node says that it is ready.
func (c *Cluster) waitNode(ctx context.Context) error {
	return c.waitFor(ctx, "node "+c.state.NodeName, Kubelet, func(ctx context.Context) error {
		var n corev1.Node
		if err := c.getObject(ctx, "/api/v1/nodes/"+c.state.NodeName, &n); err != nil {
			return err
		}
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
				return nil
			}
			if cond.Type == corev1.NodeReady {
				return fmt.Errorf("%s: %s", cond.Reason, cond.Message)
			}
		}
		return fmt.Errorf("it has not reported yet")
	})
}

// waitServiceAccount waits for the account without which no pod can be made. It comes later than the node is ready.
func (c *Cluster) waitServiceAccount(ctx context.Context) error {
	return c.waitFor(ctx, "the default service account", ControllerManager, func(ctx context.Context) error {
		var sa corev1.ServiceAccount
		return c.getObject(ctx, "/api/v1/namespaces/default/serviceaccounts/default", &sa)
	})
}

func (c *Cluster) getObject(ctx context.Context, path string, object any) error {
	data, err := c.get(ctx, apiURL+path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, object)
}

// readOK reads the answer if it is a good one.
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
