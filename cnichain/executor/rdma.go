package executor

import (
	"errors"
	"slices"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// planRDMA determines in advance which RDMA devices the step provides and whether they move, so that the journal
// contains their names and indexes before the first device moves.
func (e *Executor) planRDMA(record *StepRecord) error {
	devices, mode, err := e.FindRDMA(&record.Step)
	if err != nil || len(devices) == 0 {
		return err
	}
	record.RDMA = devices
	if mode == cnichain.RDMAExclusive {
		device := *record.Step.Device
		device.Moved = devices
		record.Step.Device = &device // copy the device: the plan is shared with other pods' attachments
	}
	return nil
}

// FindRDMA returns the RDMA devices that a step provides to the pod, and the node's RDMA mode. If the step does not
// provide any, it returns immediately without querying the kernel. It returns an error if a device is not available.
// The step's device must be on the host.
func (e *Executor) FindRDMA(step *cnichain.PlanStep) (devices []cnichain.RDMADevice, mode string, err error) {
	if step.RDMA == nil || step.Device == nil {
		return nil, "", nil
	}
	if mode, err = e.Host.RDMAMode(); err != nil {
		return nil, "", err
	}
	onHost, err := e.Host.RDMAPorts()
	if err != nil {
		return nil, "", err
	}
	// The index of a link that has returned from a pod may differ from the index in its baseline.
	now, err := e.Host.Snapshot(*step.Device)
	if err != nil {
		return nil, "", err
	}
	asked := *step
	asked.Device = &now
	devices = cnichain.RDMADevicesOf(&now, onHost)
	return devices, mode, asked.CheckRDMA(devices, mode)
}

// attachRDMA moves the RDMA devices after their link, and only then looks up their device nodes: a move changes the
// numbers in the node names, and two concurrent moves may swap them.
func (e *Executor) attachRDMA(attachment *Attachment, record *StepRecord) (err error) {
	if len(record.RDMA) == 0 {
		return nil
	}
	netns := ""
	if moved := record.Step.Device.Moved; len(moved) > 0 {
		onHost, err := e.Host.OnHost(*record.Step.Device)
		if err != nil {
			return err
		}
		if onHost && record.Step.Device.IfName != "" { // the plugin has no schema to declare that the device stays
			step := record.Step
			step.Stays = true
			return step.CheckRDMA(record.RDMA, cnichain.RDMAExclusive)
		}
		netns = attachment.Pin
		for _, rdma := range moved {
			if err := e.Host.MoveRDMA(netns, rdma); err != nil {
				return err
			}
		}
	}
	record.DeviceNodes, err = e.Host.RDMANodes(netns, record.RDMA, record.Step.RDMA.ManagementDevices)
	return err
}

// returnRDMA moves the step's RDMA devices to the host before their link is moved: some kernel drivers remove an RDMA
// device when its link is moved out of the RDMA device's namespace.
func (e *Executor) returnRDMA(attachment *Attachment, record *StepRecord) error {
	if record.Step.Device == nil || !e.Host.Exists(attachment.Pin) {
		return nil
	}
	var problems []error
	for _, rdma := range record.Step.Device.Moved {
		problems = append(problems, e.Host.ReturnRDMA(attachment.Pin, rdma))
	}
	return errors.Join(problems...)
}

// RDMANow returns the current RDMA devices of an attached step, in recorded order, and the name of the first device
// that is no longer in the pod, or "" if none is missing. After its kernel module is reloaded, a device has a new
// identity and different device nodes. Another pod's device may now have its old nodes, or even its old index.
// Containers use the device nodes, so RDMANow compares those.
func (e *Executor) RDMANow(pin string, record *StepRecord) (devices []cnichain.RDMADevice, missing string, err error) {
	if len(record.RDMA) == 0 || record.Phase != StepAdded {
		return nil, "", nil
	}
	netns := ""
	if len(record.Step.Device.Moved) > 0 {
		netns = pin
	}
	present, err := e.Host.RDMADevices(netns)
	if err != nil {
		return nil, "", err
	}
	for _, given := range record.RDMA {
		found := slices.IndexFunc(present, func(rdma cnichain.RDMADevice) bool {
			if netns != "" { // in a pod, PCI addresses are not visible and the application may rename the device
				return rdma.Index == given.Index
			}
			return given.Same(&rdma)
		})
		if found < 0 {
			return nil, given.Name, nil
		}
		devices = append(devices, present[found])
	}
	nodes, err := e.Host.RDMANodes(netns, devices, record.Step.RDMA.ManagementDevices)
	if err != nil {
		return nil, "", err
	}
	for _, node := range record.DeviceNodes { // ignore nodes that were added later, such as rdma_cm
		if !slices.Contains(nodes, node) {
			return nil, devices[0].Name, nil
		}
	}
	return devices, "", nil
}
