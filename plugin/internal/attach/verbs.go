package attach

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// describeWait is the maximum time that a sweep waits for each sandbox's slot.
const describeWait = 100 * time.Millisecond

// VerbsOf returns how an application in the pod addresses an allocated device's RDMA devices, or nil if there are none.
func VerbsOf(steps []executor.StepRecord, claimUID string, held *claims.HeldDevice) *executor.Verbs {
	for _, i := range stepsOf(steps, claimUID, held) {
		if steps[i].Verbs != nil {
			return steps[i].Verbs
		}
	}
	return nil
}

// PreferredGID returns the GID that an application would choose for an interface, and the RDMA device that this GID
// belongs to. known is false if there is no such GID. An empty name matches any interface.
func PreferredGID(verbs *executor.Verbs, ifName string) (device cnichain.VerbsDevice, gid cnichain.GID, known bool) {
	if verbs == nil {
		return device, gid, false
	}
	for _, device := range verbs.Devices {
		for _, gid := range device.GIDs { // the preferred GID of each interface comes first
			if ifName == "" || gid.Interface == ifName || gid.Type == cnichain.GIDInfiniBand {
				return device, gid, true
			}
		}
	}
	return device, gid, false
}

// verbsEnv returns the environment variables that describe the RDMA devices to containers that use a part of a claim:
// one set of variables for each interface, with its preferred GID. The variables are named after interfaces, because a
// container may name several claims and parts, while interface names are unique in the pod. If two interface names map
// to the same variable, it is omitted for both. A claim that several pods may share gets no variables, because the
// pods' interfaces differ.
func verbsEnv(record *claims.Record, sandboxes [][]executor.StepRecord, part Part) (env []string) {
	if record.Shareable {
		return nil
	}
	byPrefix := map[string][]string{}
	for _, steps := range sandboxes {
		names := map[string][]string{} // names of the pod's interfaces by prefix
		for i := range steps {
			for _, ifName := range interfacesWithGIDs(&steps[i]) {
				if prefix := envPrefix(ifName); !slices.Contains(names[prefix], ifName) {
					names[prefix] = append(names[prefix], ifName)
				}
			}
		}
		for _, i := range stepsOfPart(record, steps, part) {
			for _, ifName := range interfacesWithGIDs(&steps[i]) {
				prefix := envPrefix(ifName)
				if _, known := byPrefix[prefix]; !known && len(names[prefix]) == 1 {
					byPrefix[prefix] = envOfInterface(prefix, ifName, steps[i].Verbs)
				}
			}
		}
	}
	for _, prefix := range slices.Sorted(maps.Keys(byPrefix)) {
		env = append(env, byPrefix[prefix]...)
	}
	return env
}

// interfacesWithGIDs returns the step's interface, if the step has RDMA devices, and the interfaces that the devices'
// GIDs belong to.
func interfacesWithGIDs(step *executor.StepRecord) []string {
	if step.Verbs == nil || len(step.Verbs.Devices) == 0 {
		return nil
	}
	names := []string{step.IfName}
	for _, device := range step.Verbs.Devices {
		for _, gid := range device.GIDs {
			if gid.Interface != "" && !slices.Contains(names, gid.Interface) {
				names = append(names, gid.Interface)
			}
		}
	}
	return names
}

// envOfInterface returns the RDMA variables for one interface. If no GID matches the interface's addresses, the
// variables contain the first device but no GID index, since an application with the wrong index would communicate over
// another network.
func envOfInterface(prefix, ifName string, verbs *executor.Verbs) []string {
	device, gid, known := PreferredGID(verbs, ifName)
	if !known {
		device = verbs.Devices[0]
	}
	if device.Verbs == "" || !isPrintable(device.Name) {
		return nil
	}
	env := []string{prefix + "RDMA_DEVICE=" + device.Name, prefix + "VERBS_DEVICE=" + device.Verbs}
	if !known {
		return env
	}
	return append(env, fmt.Sprintf("%sRDMA_PORT=%d", prefix, gid.Port),
		fmt.Sprintf("%sGID_INDEX=%d", prefix, gid.Index), prefix+"GID="+gid.GID, prefix+"GID_TYPE="+gid.Type)
}

// isPrintable reports whether a name, possibly one chosen by an application, is safe to use in an environment variable
// and in rdma.max.
func isPrintable(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

// envPrefix returns the prefix of an interface's variables, which contains the name in a form that shells accept: NET1
// for net1.
func envPrefix(ifName string) string {
	return "DRA_NETWORK_" + strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(ifName)) + "_"
}

// refreshVerbs updates the record of how a pod's applications address its RDMA devices: if an address is removed and
// added again, the kernel assigns a different GID index. describeAgain publishes the changes.
func (s *Sandboxes) refreshVerbs(box *sandbox, pin string, reader *executor.VerbsReader) {
	steps := box.view().attached
	now := map[int]*executor.Verbs{}
	for i := range steps {
		if verbs := reader.Read(pin, steps, i); verbs != nil && !reflect.DeepEqual(verbs, steps[i].Verbs) {
			now[i] = verbs
		}
	}
	box.setVerbs(pin, now)
}

// setVerbs records the changed verbs, by step index, for the attachment with the given pin.
//
// The pin identifies the attempt: values from an earlier attempt must not be recorded for the steps of a later one.
func (b *sandbox) setVerbs(pin string, changed map[int]*executor.Verbs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(changed) == 0 || !b.phase.isAttached() || b.pin != pin {
		return
	}
	b.attached = slices.Clone(b.attached) // readers may still use the old slice
	for i, verbs := range changed {
		b.attached[i].Verbs = verbs
	}
	b.undescribed = true
}

// describeAgain rewrites the files of a sandbox's claims if their content has changed, and reports whether it did. It
// holds the slot, so that no claim is released concurrently: the file names contain the claim's name, which a later
// claim may reuse. If one of the sandbox's claims is being detached, the sandbox is left to the next sweep.
// describeAgain waits only briefly for the slot, because a sweep covers all sandboxes on the node.
//
// It clears the undescribed flag before it writes the files, so that changes during the write are not overlooked.
func (s *Sandboxes) describeAgain(box *sandbox) (described bool) {
	if now := box.view(); !now.undescribed || !now.phase.isAttached() {
		return false
	}
	ctx, cancel := context.WithTimeout(s.Work, describeWait)
	defer cancel()
	if box.acquire(ctx) != nil {
		return false
	}
	defer box.release()
	if now := box.view(); !now.undescribed || !now.phase.isAttached() { // the sandbox is being detached
		return false
	}
	box.set(func(b *boxState) { b.undescribed = false })
	if !s.Observer.DescribeClaims(s.Work, s.recordsOf(box)) {
		// The next sweep retries: the driver might not be registered with the kubelet yet.
		box.set(func(b *boxState) { b.undescribed = true })
	}
	return true
}

func (s *Sandboxes) recordsOf(box *sandbox) (records []claims.Record) {
	for _, uid := range box.view().attachedClaims() {
		if record, held := s.Claims.Get(uid); held {
			records = append(records, record)
		}
	}
	return records
}
