// Package idledriver implements a DRA driver that does nothing, under its own driver name. A claim for this driver
// delays a pod's start only by the time that Kubernetes itself needs to create, allocate and read the claim, which is
// the lower bound for any driver.
//
// Invariant: the driver itself adds nothing to a pod's start time.
package idledriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// Name is the name of the driver. Class is the name of its DeviceClass.
const (
	Name  = "idle.example.com"
	Class = "idle"
)

type driver struct{}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin. The devices have no CDI device IDs, so the runtime does
// nothing for them.
func (driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (
	map[types.UID]kubeletplugin.PrepareResult, error,
) {
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		result := kubeletplugin.PrepareResult{}
		for _, device := range claim.Status.Allocation.Devices.Results {
			result.Devices = append(result.Devices, kubeletplugin.Device{Requests: []string{device.Request},
				PoolName: device.Pool, DeviceName: device.Device})
		}
		results[claim.UID] = result
	}
	return results, nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (
	map[types.UID]error, error,
) {
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		results[claim.UID] = nil
	}
	return results, nil
}

// HandleError implements kubeletplugin.DRAPlugin.
func (driver) HandleError(context.Context, error, string) {}

// WatchHealthStatus implements kubeletplugin.DRAPlugin.
func (driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// Start publishes the given number of devices on the cluster's node, creates the DeviceClass, and returns a function
// that removes the sockets, the class and the slices. Call stop exactly once. The driver runs in this process, on the
// host, and serves sockets on the node, so no driver pod, image or permissions affect the measurement. If Start fails
// because the plugin helper could not be started, the class is left behind. After any other error, nothing is left
// behind.
func Start(ctx context.Context, cluster *lab.Cluster, client kubernetes.Interface, devices int) (
	stop func() error, err error,
) {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: Class}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.driver == %q", Name)}}}}}
	if _, err := client.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	// The kubelet is given the socket's path on the node. The socket is created at the path at which the same file is
	// visible to this process.
	listen := func(ctx context.Context, path string) (net.Listener, error) {
		seen, err := cluster.NodePath(path)
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Dir(seen), 0o755); err != nil {
			return nil, err
		}
		if err := os.Remove(seen); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		return new(net.ListenConfig).Listen(ctx, "unix", seen)
	}
	ctx, cancel := context.WithCancel(ctx)
	helper, err := kubeletplugin.Start(ctx, driver{}, kubeletplugin.DriverName(Name),
		kubeletplugin.NodeName(cluster.NodeName()), kubeletplugin.KubeClient(client),
		kubeletplugin.PluginListener(listen), kubeletplugin.RegistrarListener(listen))
	if err != nil {
		cancel()
		return nil, err
	}
	stop = func() error {
		helper.Stop()
		cancel()
		return remove(cluster, client)
	}
	slice := resourceslice.Slice{}
	for i := range devices {
		slice.Devices = append(slice.Devices, resourceapi.Device{Name: fmt.Sprintf("d%d", i)})
	}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		cluster.NodeName(): {Slices: []resourceslice.Slice{slice}}}}); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// remove removes all traces of the driver from the kubelet's directories and from the API. It continues after an error,
// because any remaining traces would interfere with the next run.
func remove(cluster *lab.Cluster, client kubernetes.Interface) error {
	var all error
	for _, path := range []string{filepath.Join(kubeletplugin.KubeletPluginsDir, Name),
		filepath.Join(kubeletplugin.KubeletRegistryDir, Name+"-reg.sock")} {
		seen, err := cluster.NodePath(path)
		if err == nil {
			err = os.RemoveAll(seen)
		}
		all = errors.Join(all, err)
	}
	ctx := context.Background() // the context passed to Start may have been canceled
	return errors.Join(all, client.ResourceV1().DeviceClasses().Delete(ctx, Class, metav1.DeleteOptions{}),
		client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{FieldSelector: "spec.driver=" + Name}))
}
