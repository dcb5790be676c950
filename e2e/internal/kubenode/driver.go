package kubenode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/e2e/internal/process"
)

// The driver's pod, program and endpoints.
const (
	DriverNamespace = "dra-network"
	DriverName      = "dra-network-driver"
	driverHTTP      = "http://127.0.0.1:9680"
	driverSocket    = "/var/lib/kubelet/plugins/dra.networking/netdra.sock"
)

// DriverReady waits until the driver reports that it is ready.
func (n *Node) DriverReady() {
	n.t.Helper()
	n.Until("driver that is ready", func(ctx context.Context) error {
		_, err := get(ctx, driverHTTP+"/readyz", nil)
		return err
	})
}

// KillDriver kills the driver, which the kubelet then restarts. If the driver is not running, the test fails, since
// there is no process to kill.
func (n *Node) KillDriver() {
	n.t.Helper()
	pids, err := process.PIDs(process.Runs(DriverName))
	n.must(err)
	killed := false
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			killed = true
		}
	}
	if !killed {
		n.t.Fatal("found no driver process to kill")
	}
}

// SetDriver sets the driver DaemonSet's node selector, given as JSON. A selector that does not match the node removes
// the driver from it; "null" brings the driver back.
func (n *Node) SetDriver(selector string) {
	n.t.Helper()
	_, err := n.Client.AppsV1().DaemonSets(DriverNamespace).Patch(context.Background(), DriverName,
		types.MergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"nodeSelector":`+selector+`}}}}`), metav1.PatchOptions{})
	n.must(err)
}

// DriverGone waits until the driver's pod no longer exists.
func (n *Node) DriverGone() {
	n.t.Helper()
	n.Until("end of the driver", func(ctx context.Context) error {
		pods, err := n.driverPods(ctx)
		if err == nil && len(pods) > 0 {
			err = ErrStill
		}
		return err
	})
}

func (n *Node) driverPods(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := n.Client.CoreV1().Pods(DriverNamespace).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + DriverName})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// Forgotten returns nil if the driver's journal contains no records, and otherwise an error that describes the
// remaining records.
func Forgotten(ctx context.Context) error {
	var problems []error
	for _, kind := range []string{"claims", "sandboxes", "leftovers"} {
		body, err := Query(ctx, kind)
		if text := strings.TrimSpace(body); err == nil && text != "[]" && text != "{}" && text != "null" {
			err = fmt.Errorf("%s: %s", kind, text)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// Query returns one kind of record, read from the driver's socket.
func Query(ctx context.Context, kind string) (string, error) {
	return get(ctx, "http://driver/"+kind, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", driverSocket)
	})
}

// Offered returns the published devices, each mapped to the values of its taints.
func (n *Node) Offered(ctx context.Context) (map[string]string, error) {
	list, err := n.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	devices := map[string]string{}
	for i := range list.Items {
		for _, device := range list.Items[i].Spec.Devices {
			taints := ""
			for _, taint := range device.Taints {
				taints += taint.Value
			}
			devices[device.Name] = taints
		}
	}
	return devices, nil
}

// get sends a request without keepalive, because tests kill the driver between requests, and a reused connection to the
// old process would cause a misleading error.
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
	defer func() { _ = response.Body.Close() }() // used only for reading
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", address, response.Status, body)
	}
	return string(body), err
}
