package attach

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// unrecorded contains the gates that an earlier driver process opened for claims whose records were lost with the
// journal. The gate file determines whether their containers may restart; the driver does nothing else for them. It is
// safe for concurrent use.
type unrecorded struct {
	mu sync.Mutex
	// pins contains the pins in each gate, by claim UID.
	pins map[string][]string
}

func newUnrecorded() *unrecorded { return &unrecorded{pins: map[string][]string{}} }

func (u *unrecorded) add(claimUID string, pins []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pins[claimUID] = pins
}

func (u *unrecorded) has(claimUID string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pins[claimUID] != nil
}

// claims returns the UIDs of the claims, sorted.
func (u *unrecorded) claims() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.pins))
}

func (u *unrecorded) pinsOf(claimUID string) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.pins[claimUID])
}

// hasPin reports whether a gate contains a pin with this file name.
func (u *unrecorded) hasPin(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hasPinLocked(name)
}

func (u *unrecorded) hasPinLocked(name string) bool {
	for _, pins := range u.pins {
		if slices.ContainsFunc(pins, func(pin string) bool { return host.IsPinOf(name, pin) }) {
			return true
		}
	}
	return false
}

// remove forgets a claim and removes its pins, except those that are also in another gate: a pod may have several
// claims. If this fails, the claim is restored for the next attempt. The lock is not held meanwhile, since runtime
// hooks take it.
func (u *unrecorded) remove(claimUID string, unpin func(pin string) error) error {
	pins, unused := u.drain(claimUID)
	var problems []error
	for _, pin := range unused {
		problems = append(problems, unpin(pin))
	}
	err := errors.Join(problems...)
	if err != nil {
		u.add(claimUID, pins)
	}
	return err
}

// drain removes a claim and returns all of its pins, and those that no other claim uses.
func (u *unrecorded) drain(claimUID string) (pins, unused []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pins = u.pins[claimUID]
	delete(u.pins, claimUID)
	return pins, slices.DeleteFunc(slices.Clone(pins),
		func(pin string) bool { return u.hasPinLocked(filepath.Base(pin)) })
}

// IsUnrecorded reports whether a claim has attachments whose records were lost with the journal.
func (s *Sandboxes) IsUnrecorded(claimUID string) bool { return s.unrecorded.has(claimUID) }

// IsUnrecordedPin reports whether a file is the pin of an attachment whose record was lost with the journal.
func (s *Sandboxes) IsUnrecordedPin(name string) bool { return s.unrecorded.hasPin(name) }

// unrecordedPinsOf returns the existing pins of a claim's unrecorded attachments: a claim with several pods may have
// been prepared again for one of them.
func (s *Sandboxes) unrecordedPinsOf(claimUID string) []string {
	return slices.DeleteFunc(s.unrecorded.pinsOf(claimUID),
		func(pin string) bool { return !s.executor.Host.Exists(pin) })
}

// AdmitsUnrecorded reports whether, according to the gate, the claim is attached to the namespace.
func (s *Sandboxes) AdmitsUnrecorded(claimUID, netns string) bool {
	return slices.ContainsFunc(s.unrecorded.pinsOf(claimUID), func(pin string) bool {
		same, _ := s.compareNamespaces(netns, pin, "")
		return same
	})
}

// releaseUnrecorded removes the state of a claim that is only known from its gate. The kernel returns the claim's
// devices to the host when the namespace is destroyed.
func (s *Sandboxes) releaseUnrecorded(claimUID string) error {
	return s.unrecorded.remove(claimUID, s.executor.Host.Unpin)
}

// collectUnrecorded releases the unrecorded claims whose namespaces are pinned only by the driver in two consecutive
// sweeps. isNamed reports whether the runtime has a path for the namespace of a pin.
//
// containerd, for example, keeps /run/netns/cni-… until the sandbox is removed. If only the driver's pin remains, the
// pod has terminated.
func (s *Sandboxes) collectUnrecorded(suspects map[string]bool, isNamed func(pin string) bool) map[string]bool {
	ended := map[string]bool{}
	for _, uid := range s.unrecorded.claims() {
		switch {
		case slices.ContainsFunc(s.unrecorded.pinsOf(uid), isNamed):
		case suspects[uid]:
			logger := klog.FromContext(s.work).WithValues("claimUID", uid)
			if err := errors.Join(s.releaseUnrecorded(uid), s.SyncGate(uid)); err != nil {
				logger.Error(err, "Cannot close the gate of a claim without a journal record; the next sweep "+
					"tries again")
				continue
			}
			logger.Info("Closed the gate of a claim without a journal record: its pods have ended")
		default:
			ended[uid] = true
		}
	}
	return ended
}
