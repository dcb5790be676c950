package attach

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// ContainerLimits contains the resource limits of one container.
type ContainerLimits struct {
	// LockedMemory is the value of RLIMIT_MEMLOCK in bytes; 0 means the runtime's default, and cnichain.Unlimited means
	// no limit.
	LockedMemory uint64
	// RDMA is the content of rdma.max for the container's cgroup, with one line for each RDMA device (cgroup-v2.rst,
	// "RDMA"). It is empty if no limit is set.
	RDMA string
}

// ContainerLimits returns the limits for a container that names parts of claims, in an attached sandbox. It returns an
// error if one of the RDMA devices is no longer in the pod: the device nodes in the container's specification may now
// belong to another pod.
func (s *Sandboxes) ContainerLimits(id string, named []Part) (ContainerLimits, error) {
	box := s.find(id)
	if box == nil {
		return ContainerLimits{}, nil
	}
	now := box.view()
	names := sync.OnceValues(s.Executor.Host.RDMANames) // reads one file per device while the runtime holds its lock
	var limits ContainerLimits
	var lines []string
	steps := now.attached
	for _, i := range s.stepsOfParts(steps, named) {
		step := &steps[i]
		memory, err := cnichain.LockedMemory(step.Step.Limits)
		if err != nil {
			return ContainerLimits{}, fmt.Errorf("%s: %w", step.Title(), err)
		}
		limits.LockedMemory = max(limits.LockedMemory, memory)
		devices, missing, err := s.Executor.RDMANow(now.pin, step)
		if err == nil && missing != "" {
			err = fmt.Errorf("RDMA device %s of claim %s is no longer in the pod: its kernel module was "+
				"unloaded, or the device was removed; delete the pod to attach it again", missing, step.Claim)
		}
		if err != nil {
			return ContainerLimits{}, err
		}
		ofStep, err := rdmaMax(step, devices, names)
		if err != nil {
			return ContainerLimits{}, err
		}
		lines = append(lines, ofStep...)
	}
	slices.Sort(lines)
	limits.RDMA = strings.Join(slices.Compact(lines), "\n")
	return limits, nil
}

// stepsOfParts returns the indexes of the steps for parts of claims, in order and without duplicates.
func (s *Sandboxes) stepsOfParts(steps []executor.StepRecord, named []Part) []int {
	var found []int
	for _, part := range named {
		record, held := s.Claims.Get(part.ClaimUID)
		if !held {
			part.Request = "" // the claim is being released: limits that are not needed are better than none
		}
		found = append(found, stepsOfPart(&record, steps, part)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// rdmaMax returns the rdma.max lines for a step's RDMA devices, using their current names. An application with
// CAP_NET_ADMIN can rename an RDMA device in the pod: a space in the name would turn the line into a limit for another
// device.
//
// The kernel looks up a name in all network namespaces, and two devices may have the same name. In that case, the
// kernel rejects the line; older kernels limit the first device that they find. Therefore, rdmaMax adds the index,
// which identifies the device; older kernels reject the index. names returns the names of all RDMA devices on the node.
func rdmaMax(
	step *executor.StepRecord, devices []cnichain.RDMADevice, names func() ([]string, error),
) ([]string, error) {
	limits := step.Step.Limits
	if limits == nil || limits.RDMAHandles == nil && limits.RDMAObjects == nil {
		return nil, nil
	}
	ofAll, err := names()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, device := range devices {
		if !isPrintable(device.Name) {
			return nil, fmt.Errorf("RDMA device %q of claim %s cannot be limited: no name with spaces or control "+
				"characters can be written to rdma.max; delete the pod, or rename the device in it (rdma dev set)",
				device.Name, step.Claim)
		}
		line := device.Name
		if first := slices.Index(ofAll, device.Name); first >= 0 && slices.Contains(ofAll[first+1:], device.Name) {
			line += fmt.Sprintf(" index=%d", device.Index)
		}
		if limits.RDMAHandles != nil {
			line += fmt.Sprintf(" hca_handle=%d", *limits.RDMAHandles)
		}
		if limits.RDMAObjects != nil {
			line += fmt.Sprintf(" hca_object=%d", *limits.RDMAObjects)
		}
		lines = append(lines, line)
	}
	return lines, nil
}
