package suite

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// idleDriver is a DRA driver of another name that does nothing: what a pod with its claim takes longer than one
// without is what Kubernetes itself takes to make, allocate and read a claim, so it is the floor under every driver.
type idleDriver struct{}

const idleDriverName = "idle.example.com"

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (idleDriver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (
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
func (idleDriver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (
	map[types.UID]error, error,
) {
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		results[claim.UID] = nil
	}
	return results, nil
}

// HandleError implements kubeletplugin.DRAPlugin.
func (idleDriver) HandleError(context.Context, error, string) {}

// WatchHealthStatus implements kubeletplugin.DRAPlugin.
func (idleDriver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// startIdleDriver serves the idle driver with so many devices, and a class of its name, until the test ends.
func (e *env) startIdleDriver(devices int) {
	e.Helper()
	e.apply(fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: idle}
spec: {selectors: [{cel: {expression: 'device.driver == "%s"'}}]}
`, idleDriverName))
	nodes, err := e.client.CoreV1().Nodes().List(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	// kubelet is told the path as the node has it; the socket is made where this process sees the node's files.
	listen := func(ctx context.Context, path string) (net.Listener, error) {
		seen := e.fileOnNode(path)
		if err := os.MkdirAll(filepath.Dir(seen), 0o755); err != nil {
			return nil, err
		}
		if err := os.Remove(seen); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		return new(net.ListenConfig).Listen(ctx, "unix", seen)
	}
	ctx, cancel := context.WithCancel(e.Context())
	helper, err := kubeletplugin.Start(ctx, idleDriver{}, kubeletplugin.DriverName(idleDriverName),
		kubeletplugin.NodeName(nodes.Items[0].Name), kubeletplugin.KubeClient(e.client),
		kubeletplugin.PluginListener(listen), kubeletplugin.RegistrarListener(listen))
	if err != nil {
		cancel()
		e.Fatal(err)
	}
	e.Cleanup(func() {
		helper.Stop()
		cancel()
		for _, path := range []string{filepath.Join(kubeletplugin.KubeletPluginsDir, idleDriverName),
			filepath.Join(kubeletplugin.KubeletRegistryDir, idleDriverName+"-reg.sock")} {
			if err := os.RemoveAll(e.fileOnNode(path)); err != nil {
				e.Error(err)
			}
		}
		if output, err := e.kubectl("", "delete", "deviceclass", "idle"); err != nil {
			e.Error(err, output)
		}
		if output, err := e.kubectl("", "delete", "resourceslices", "--field-selector",
			"spec.driver="+idleDriverName); err != nil {
			e.Error(err, output)
		}
	})
	slice := resourceslice.Slice{}
	for i := range devices {
		slice.Devices = append(slice.Devices, resourceapi.Device{Name: fmt.Sprintf("d%d", i)})
	}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		nodes.Items[0].Name: {Slices: []resourceslice.Slice{slice}}}}); err != nil {
		e.Fatal(err)
	}
	e.eventually("the idle driver's slices are published", func(ctx context.Context) (bool, error) {
		slices, err := e.client.ResourceV1().ResourceSlices().List(ctx,
			metav1.ListOptions{FieldSelector: "spec.driver=" + idleDriverName})
		return err == nil && len(slices.Items) > 0, err
	})
}
