package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
)

// snapshot completes a record: it rejects quarantined devices and, while the other devices are still free, records the
// state that they must have when they return to the host. State left behind by a later crash never becomes the
// baseline, because the claim is not released until its devices have returned.
func (d *draPlugin) snapshot(ctx context.Context, record *claims.Record) error {
	plans := make([]cnichain.Plan, 0, len(record.Plans))
	for _, plan := range record.Plans {
		var err error
		if plan.Steps, err = d.ofSteps(ctx, plan.Steps); err != nil {
			return err
		}
		if plan.External, err = d.ofSteps(ctx, plan.External); err != nil {
			return err
		}
		plans = append(plans, plan)
	}
	record.Plans = plans
	return nil
}

// ofSteps returns a copy of steps with the baseline of each device filled in.
func (d *draPlugin) ofSteps(ctx context.Context, steps []cnichain.PlanStep) ([]cnichain.PlanStep, error) {
	steps = slices.Clone(steps)
	// Check immediately before the snapshots: a use that starts after this check goes undetected.
	if err := d.notBusy(ctx, steps); err != nil {
		return nil, err
	}
	for i := range steps {
		if steps[i].Device == nil {
			continue
		}
		device, err := d.ofDevice(*steps[i].Device)
		if err != nil {
			return nil, err
		}
		steps[i].Device = &device
		if _, _, err := d.Executor.FindRDMA(&steps[i]); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

func (d *draPlugin) ofDevice(device cnichain.Device) (cnichain.Device, error) {
	if err := d.Executor.Quarantined(&device); err != nil {
		return device, err
	}
	now, err := d.Executor.Host.Snapshot(device)
	if err == nil && now.IfName != device.IfName {
		err = fmt.Errorf("device %s was renamed from %[3]s to %[2]s in the meantime; trying again", device.Name, now.IfName,
			device.IfName)
	}
	if err != nil {
		d.Publisher.Trigger() // the device differs from its discovered state
	}
	return now, err
}

// notBusy returns an error if the node itself uses any of the links, because the node could become unreachable without
// them. A policy can permit only uses that can be restored. The caller must take the baselines immediately afterwards.
func (d *draPlugin) notBusy(ctx context.Context, steps []cnichain.PlanStep) error {
	var devices []*cnichain.Device
	var names []discovery.IfName
	for i := range steps {
		if device := steps[i].Device; device != nil && device.Exclusive && device.IfName != "" && !device.KeepsLink {
			devices, names = append(devices, device), append(names, discovery.IfName(device.IfName))
		}
	}
	if len(devices) == 0 {
		return nil
	}
	uses, err := d.Busy(ctx, names...)
	if err != nil {
		return err
	}
	for i, device := range devices {
		if err := mayTake(device, uses[names[i]]); err != nil {
			return err
		}
	}
	return nil
}

func mayTake(device *cnichain.Device, use discovery.Use) error {
	if use.Reason == "" || use.Restorable && device.AllowInUse {
		return nil
	}
	remedy := "stop using it, or exclude it with a DeviceExposurePolicy, and delete the claim"
	if use.Restorable {
		remedy += "; or set allowInUse in the policy, which removes them from the node while a pod has the device"
	}
	return fmt.Errorf("device %s (%s) cannot be taken from the node: %s; %s", device.Name, device.IfName,
		use.Reason, remedy)
}

// renewed returns plans with new baselines for devices whose baselines are from an earlier boot: the state from that
// boot must not be restored, and its interface indexes may now refer to links that belong to other claims. After a
// boot, the kubelet prepares claims again before it starts their pods, so the devices are on the host. A device that is
// not on the host, for example because the driver was replaced later, keeps its old baseline.
//
// For devices that this driver attaches, errors surface during the attachment; the returned error covers only devices
// that other components attach. If attached is false, the devices that this driver attaches keep their old baselines.
func (d *draPlugin) renewed(
	ctx context.Context, plans []cnichain.Plan, attached bool,
) (now []cnichain.Plan, changed bool, err error) {
	renew := func(steps []cnichain.PlanStep, takesNames bool) ([]cnichain.PlanStep, error) {
		var problems []error
		steps = slices.Clone(steps)
		for i := range steps {
			if steps[i].Device == nil {
				continue
			}
			device, err := d.Executor.RenewedBaseline(ctx, steps[i].Device)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				problems = append(problems, err)
			}
			// A shared device may have no baseline. If a device was renamed, keep its old baseline: the attachment then
			// rejects the device, because its plugin's configuration contains the old name.
			if err == nil && device.BootID != "" && (takesNames || device.IfName == steps[i].Device.IfName) {
				changed = changed || device.BootID != steps[i].Device.BootID
				steps[i].Device = device
			}
		}
		return steps, errors.Join(problems...)
	}
	now = slices.Clone(plans)
	var problems []error
	for i := range now {
		if attached {
			now[i].Steps, _ = renew(now[i].Steps, false)
		}
		var problem error
		now[i].External, problem = renew(now[i].External, true)
		problems = append(problems, problem)
	}
	return now, changed, errors.Join(problems...)
}

func (d *draPlugin) renewBaselines(ctx context.Context, record *claims.Record) error {
	onTheirWay := d.Sandboxes.IsUsedSinceBoot(record.Claim.UID) // the devices may be moving to or from a pod
	plans, changed, err := d.renewed(ctx, record.Plans, !onTheirWay)
	if err != nil || !changed {
		return err
	}
	record.Plans = plans
	return d.Claims.Renew(*record)
}

// linkUse determines how the node itself uses its links. It is safe for concurrent use.
type linkUse struct {
	cluster *cluster

	mu sync.Mutex
	// sources were opened at startup, when every thread was in the network namespace of the host. They are not shared
	// with other components, because sources are not safe for concurrent use.
	sources discovery.Sources
}

// find returns how the node itself uses the named links. As long as the addresses in the Node object are unknown, any
// address on a link could be one of them, so find considers no use restorable.
func (u *linkUse) find(ctx context.Context, names ...discovery.IfName) (map[discovery.IfName]discovery.Use, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	sources := u.sources
	node, unknown := u.cluster.ThisNode()
	if unknown == nil {
		sources.NodeAddresses = publish.NodeAddresses(node)
	}
	uses, err := discovery.Busy(ctx, sources, names...)
	for name, use := range uses {
		use.Restorable = use.Restorable && unknown == nil
		uses[name] = use
	}
	return uses, err
}

// close closes the sources. find must not be called afterwards.
func (u *linkUse) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sources.Close()
}
