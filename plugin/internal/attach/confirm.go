package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// Before containers may start, the code in this file checks the sandboxes from an earlier driver process or connection
// against the state of the runtime and the kernel.

// Confirm must be called at the start of a connection to the runtime. listed maps the IDs of the runtime's sandboxes to
// their network namespace paths; the path is empty for a sandbox without a network namespace. From then on, the runtime
// reports every new sandbox. A sandbox that is missing from the list may still exist, so its gate stays closed, and the
// driver determines by other means whether it exists.
//
// Sandboxes are confirmed before the connection becomes active, and gates are written last. Therefore, no gate opens
// for a sandbox that has not been compared yet, even if SyncGate is called in the meantime.
func (s *Sandboxes) Confirm(listed map[string]string) error {
	next := newConnection(listed)
	next.live = true
	for _, box := range s.list() {
		same, known := s.confirmIn(next, box)
		now := box.view()
		pin, ready := now.pin, now.phase.isAttached()
		netns := listed[box.id]
		if ready && !known && s.NamespaceExists(netns) { // otherwise the sandbox no longer exists
			s.tellUnconfirmed(box, netns)
		}
		if ready && known && !same {
			s.logger(box).Info("The network namespace of the sandbox differs from the attached one; attaching it again",
				"netns", netns, "pin", pin)
			// Roll back without calling StopSandbox, which would mark the sandbox as stopped: the sandbox still exists
			// in the runtime, and once the steps in the old namespace have been rolled back, it is attached again in
			// the new namespace.
			box.markReleasing(nil)
			s.detachUntilDone(box)
		}
	}
	s.mu.Lock()
	s.connection = next
	s.mu.Unlock()
	return s.syncAllGates()
}

// confirmAgain confirms sandboxes that could not be compared at the start of the connection, for example because the
// kernel did not respond or the pin was missing at the time.
//
// If the connection ends while confirmAgain is running, its confirmations are discarded.
func (s *Sandboxes) confirmAgain() {
	s.mu.Lock()
	current := s.connection
	boxes := slices.DeleteFunc(s.listLocked(), func(box *sandbox) bool {
		return !current.live || current.confirmed.Has(box)
	})
	s.mu.Unlock()
	for _, box := range boxes {
		if same, _ := s.confirmIn(current, box); same {
			s.logger(box).Info("Confirmed the sandbox, whose namespace could not be compared before")
		}
	}
}

// confirmIn confirms a sandbox on a connection if the connection lists it and all attached interfaces are in the listed
// network namespace; see compareNamespaces.
func (s *Sandboxes) confirmIn(current *connection, box *sandbox) (same, known bool) {
	netns := current.listed[box.id]
	now := box.view()
	ready := now.phase.isAttached()
	if ready && netns != "" {
		s.repin(box, now.pin)
	}
	same, known = s.compareNamespaces(netns, now.pin, now.netNSID)
	if netns == "" || ready && !same {
		return same, known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[box.id] == box { // otherwise the sandbox no longer exists
		current.confirmed.Insert(box)
	}
	return same, known
}

func (s *Sandboxes) tellUnconfirmed(box *sandbox, netns string) {
	err := fmt.Errorf("cannot compare the network namespace of the pod, %s, with the attached one: the driver's file "+
		"for it was removed, or the kernel did not answer; delete the pod if its containers do not start again", netns)
	s.logger(box).Error(err, "Cannot confirm the sandbox; its interfaces stay attached and its gates closed")
	s.Observer.AttachFailed(box.pod, s.recordsOf(box), err, 0)
}

// compareNamespaces reports whether both paths refer to the same network namespace. known is false if one of the paths
// could not be inspected; in this case, same is meaningless. As long as the pin exists, it keeps its namespace alive,
// so no other namespace can have the same identity. Without the pin, the identity may have been reused for another
// namespace, so equal identities prove nothing, but different identities still prove that the namespaces differ.
func (s *Sandboxes) compareNamespaces(netns, pin, identity string) (same, known bool) {
	host := s.Executor.Host
	if netns == "" || !host.Exists(netns) {
		return false, false
	}
	if !host.Exists(pin) {
		now, err := host.NamespaceID(netns)
		return false, err == nil && identity != "" && now != identity
	}
	// The kernel reuses the inodes of destroyed namespaces. The pin keeps our namespace alive, so equal inodes identify
	// the same namespace here.
	atPath, err := host.NamespaceID(netns)
	if err != nil {
		return false, false
	}
	atPin, err := host.NamespaceID(pin)
	return err == nil && atPath == atPin, err == nil
}

// repin reports whether the namespace of a sandbox is pinned. If another process has removed the pin, repin pins the
// namespace at the runtime's path, provided that it is the same namespace, that is, it contains every attached
// interface.
//
// Without the pin, the kernel would destroy the namespace, including its virtual links, when the last process in it
// terminates, before any DEL could run.
func (s *Sandboxes) repin(box *sandbox, pin string) bool {
	if s.Executor.Host.Exists(pin) {
		return true
	}
	now := box.view()
	netns := now.netns
	if netns == "" || !s.Executor.Host.Exists(netns) {
		return false
	}
	links, err := s.Executor.Host.Links(netns)
	if err != nil || len(missingLinks(now.attached, links)) > 0 {
		return false
	}
	if err := s.Executor.Host.Pin(netns, pin); err != nil {
		s.logger(box).Error(err, "Cannot pin the network namespace again")
		return false
	}
	s.logger(box).Info("Pinned the network namespace again because its pin was removed", "pin", pin)
	return true
}

// missingLinks returns, by step index, the interfaces of steps that are not among the links in the pod. An interface is
// identified by its index in the namespace, which the kernel does not reuse soon, and by its kind, but not by its name,
// since an application may rename the interface. The kind is compared only if it is known, because records from earlier
// drivers do not contain it.
func missingLinks(steps []executor.StepRecord, links []cnichain.Link) map[int]string {
	missing := map[int]string{}
	for i := range steps {
		seen := steps[i].Link
		if seen == nil || steps[i].Phase != executor.StepAdded {
			continue
		}
		if !slices.ContainsFunc(links, func(link cnichain.Link) bool {
			return link.Index == seen.Index && (seen.Kind == "" || link.Kind == seen.Kind)
		}) {
			missing[i] = steps[i].IfName
		}
	}
	return missing
}

// inspect reads the namespace of every ready sandbox and records which interfaces are missing and how the RDMA devices
// are addressed. It returns the sandboxes for which this has changed. Each sweep lists the links in the namespaces
// instead of watching them: a subscription requires a socket for each pod and loses notifications when its buffer is
// full, so listing would still be necessary.
func (s *Sandboxes) inspect() (changed []*sandbox) {
	reader := s.Executor.VerbsReader()
	for _, box := range s.list() {
		now := box.view()
		pin, steps := now.pin, now.attached
		if !now.phase.isAttached() || !s.repin(box, pin) {
			continue // if the namespace is not pinned, the sandbox is probably gone, which other checks will detect
		}
		links, err := s.Executor.Host.Links(pin)
		if err != nil {
			s.logger(box).Error(err, "Cannot list the interfaces of the pod")
			continue
		}
		missing := missingLinks(steps, links)
		if err := s.addMissingRDMA(missing, steps, pin); err != nil {
			s.logger(box).Error(err, "Cannot list the RDMA devices of the pod")
			continue
		}
		s.refreshVerbs(box, pin, reader)
		described := s.describeAgain(box)
		if box.setMissing(missing) || described {
			changed = append(changed, box)
		}
	}
	return changed
}

// addMissingRDMA adds to missing the steps whose RDMA device is no longer in the pod, unless their interface is already
// listed.
func (s *Sandboxes) addMissingRDMA(missing map[int]string, steps []executor.StepRecord, pin string) error {
	for i := range steps {
		if missing[i] != "" {
			continue
		}
		_, name, err := s.Executor.RDMANow(pin, &steps[i])
		if err != nil {
			return err
		}
		if name != "" {
			missing[i] = "RDMA device " + name
		}
	}
	return nil
}

func (s *Sandboxes) reportMissing(changed []*sandbox) {
	for _, box := range changed {
		now := box.view()
		var err error
		if missing := now.missingNames(); len(missing) > 0 {
			err = errors.New(MissingText(missing...))
			s.logger(box).Error(err, "Interfaces of the pod are missing")
		}
		s.Observer.InterfacesChanged(box.pod, now.attachedClaims(), err)
	}
}

// MissingText returns the message that tells a pod's owner which interfaces are missing.
func MissingText(names ...string) string { return nodestate.MissingText("the pod", names...) }

// MissingInterface returns the name of a held device's interface that is missing from its pod, or "" if none is
// missing.
func (s *Sandboxes) MissingInterface(claimUID string, held *claims.HeldDevice) string {
	for _, box := range s.list() {
		now := box.view()
		if name := MissingOf(now.steps(claimUID), now.missingOf(claimUID), claimUID, held); name != "" {
			return name
		}
	}
	return ""
}

// MayBeInPod reports whether a device may be in a pod, or on its way to or from one. It must only be called for a
// device that a claim holds exclusively and that is not on the host. If it returns false, the device no longer exists.
func (s *Sandboxes) MayBeInPod(claimUID string, held *claims.HeldDevice) bool {
	for _, box := range s.list() {
		now := box.view()
		if !now.uses(claimUID) {
			continue
		}
		root := stepsOf(now.steps(claimUID), claimUID, held)
		if len(root) == 0 || now.missingOf(claimUID)[root[0]] == "" {
			return true
		}
	}
	return s.IsUnrecorded(claimUID)
}
