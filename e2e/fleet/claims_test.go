package fleet

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// allocatedOn waits until devices on a node are allocated to a claim.
func (f *fleet) allocatedOn(claim string, n *lab.Node) {
	f.Helper()
	f.eventually(fmt.Sprintf("claim %s is allocated on %s", claim, n.NodeName()), func(ctx context.Context) error {
		found, err := f.client.ResourceV1().ResourceClaims(f.namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if found.Status.Allocation == nil {
			return errors.New("it has no allocation")
		}
		return f.poolOf(ctx, found.Status.Allocation.Devices.Results[0].Pool, n)
	})
}

// poolOf returns an error unless a pool is one of the node's pools.
func (f *fleet) poolOf(ctx context.Context, pool string, n *lab.Node) error {
	list, err := f.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, slice := range list.Items {
		if slice.Spec.Pool.Name == pool && slice.Spec.NodeName != nil && *slice.Spec.NodeName == n.NodeName() {
			return nil
		}
	}
	return fmt.Errorf("its pool is %q, which does not belong to %s", pool, n.NodeName())
}

// statusOf waits until a claim's status describes a device on a node, with the hardware address that the node's kernel
// reports.
func (f *fleet) statusOf(claim string, n *lab.Node) {
	f.Helper()
	f.eventually(fmt.Sprintf("status of claim %s is of %s", claim, n.NodeName()), func(ctx context.Context) error {
		found, err := f.client.ResourceV1().ResourceClaims(f.namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(found.Status.Devices) != 1 {
			return fmt.Errorf("its status has %d devices", len(found.Status.Devices))
		}
		device := found.Status.Devices[0]
		if device.NetworkData == nil || device.NetworkData.HardwareAddress != f.address(n, device.Device) {
			return fmt.Errorf("the device in its status is %+v", device)
		}
		return f.poolOf(ctx, device.Pool, n)
	})
}
