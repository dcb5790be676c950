package attach

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"

	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// This file manages the gates that an earlier driver process opened for claims whose records were lost with the
// journal. The gate file determines whether containers with such a claim may restart; the driver does nothing else for
// the claim.

// IsUnrecorded reports whether a claim has attachments whose records were lost with the journal.
func (s *Sandboxes) IsUnrecorded(claimUID string) bool { return len(s.pinsInGate(claimUID)) > 0 }

func (s *Sandboxes) pinsInGate(claimUID string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unrecorded[claimUID])
}

// IsUnrecordedPin reports whether name is the file name of a pin whose attachment record was lost with the journal.
func (s *Sandboxes) IsUnrecordedPin(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isUnrecordedPin(name)
}

// isUnrecordedPin is like IsUnrecordedPin, but the caller must hold the lock.
func (s *Sandboxes) isUnrecordedPin(name string) bool {
	for _, pins := range s.unrecorded {
		if slices.ContainsFunc(pins, func(pin string) bool { return host.IsPinOf(name, pin) }) {
			return true
		}
	}
	return false
}

// unrecordedPinsOf returns the existing pins of a claim's unrecorded attachments. Even a claim that has a record may
// have such pins: if several pods use the claim, it may have been prepared again for one of them.
func (s *Sandboxes) unrecordedPinsOf(claimUID string) []string {
	return slices.DeleteFunc(s.pinsInGate(claimUID), func(pin string) bool { return !s.Executor.Host.Exists(pin) })
}

// AdmitsUnrecorded reports whether the claim is attached to the namespace according to its gate.
func (s *Sandboxes) AdmitsUnrecorded(claimUID, netns string) bool {
	return slices.ContainsFunc(s.pinsInGate(claimUID), func(pin string) bool {
		same, _ := s.compareNamespaces(netns, pin, "")
		return same
	})
}

// releaseUnrecorded discards a claim that is known only from its gate and removes the claim's pins, except pins that
// are also listed in another gate, since a pod may have several claims. The kernel returns the claim's devices to the
// host when the namespace is destroyed. If a pin cannot be removed, releaseUnrecorded restores the claim, so that the
// release can be retried. The lock is not held while pins are removed, since calls from the runtime need it.
func (s *Sandboxes) releaseUnrecorded(claimUID string) error {
	s.mu.Lock()
	pins := s.unrecorded[claimUID]
	delete(s.unrecorded, claimUID)
	unused := slices.DeleteFunc(slices.Clone(pins),
		func(pin string) bool { return s.isUnrecordedPin(filepath.Base(pin)) })
	s.mu.Unlock()
	var problems []error
	for _, pin := range unused {
		problems = append(problems, s.Executor.Host.Unpin(pin))
	}
	err := errors.Join(problems...)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unrecorded[claimUID] = pins
	}
	return err
}

// collectUnrecorded releases the unrecorded claims whose namespaces, in two consecutive sweeps, are kept only by the
// driver's pins. isNamed reports whether the runtime has a path to a pin's namespace.
//
// containerd, for example, keeps /run/netns/cni-… until the sandbox is removed. If only the driver's pin remains, the
// pod has terminated.
func (s *Sandboxes) collectUnrecorded(suspects map[string]bool, isNamed func(pin string) bool) map[string]bool {
	s.mu.Lock()
	uids := slices.Sorted(maps.Keys(s.unrecorded))
	s.mu.Unlock()
	ended := map[string]bool{}
	for _, uid := range uids {
		switch {
		case slices.ContainsFunc(s.pinsInGate(uid), isNamed):
		case suspects[uid]:
			logger := klog.FromContext(s.Work).WithValues("claimUID", uid)
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
