package attach

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// Recover adopts the state of an earlier driver process. Sandboxes that were ready in this boot and still have their
// namespace stay attached; all others are rolled back in the background. Before Recover returns, it closes the gates,
// which stay closed until the runtime has listed its sandboxes: see [Sandboxes.Confirm].
//
// It runs before the driver serves the kubelet or connects to the runtime. Therefore, no sandbox is registered and no
// pin is created while it compares the pins in the directory with the records.
func (s *Sandboxes) Recover(attachments map[string]*executor.Attachment) error {
	pins := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(attachments)) {
		box := recovered(attachments[id], s.BootID)
		pins[filepath.Base(attachments[id].Pin)] = true
		s.mu.Lock()
		s.byID[id] = box
		s.mu.Unlock()
	}
	problems := []error{s.adoptGates(pins)}
	if err := s.removeUnknownPins(pins); err != nil { // an unknown pin is a leak but not a reason to fail
		klog.FromContext(s.Work).Error(err, "Cannot remove old pins of network namespaces", "dir", s.PinDir)
	}
	reader := s.Executor.VerbsReader()
	for _, box := range s.list() {
		switch now := box.view(); {
		case !now.phase.isAttached():
		case !s.repin(box, now.pin):
			// The pod may nevertheless be running in the attached namespace; Confirm will decide.
			_, known := s.compareNamespaces(now.netns, now.pin, now.netNSID)
			if known || !s.NamespaceExists(now.netns) {
				box.markReleasing(nil)
			}
		default: // gates open before the first sweep, and the journal contains only the state at the time of the attach
			s.refreshVerbs(box, now.pin, reader)
		}
		if box.view().phase.isEnding() {
			s.detachUntilDone(box)
		}
	}
	return errors.Join(problems...)
}

// adoptGates closes the gates that an earlier driver process left open. Gates of claims that are not in the journal but
// whose namespaces are still pinned stay open: their pods are running, and the kubelet does not prepare their claims
// again when a container restarts. known is the set of names of pins in use; adoptGates adds the pins from these gates.
//
// Suspended gates are treated as open: the earlier process may have lost its connection to the runtime before it was
// killed.
func (s *Sandboxes) adoptGates(known map[string]bool) error {
	uids, err := s.Gate.claims()
	problems := []error{err,
		s.Gate.sweep(func(info fs.FileInfo) bool { return s.Clock.Since(info.ModTime()) > time.Hour })}
	unrecorded := map[string][]string{}
	for _, uid := range uids {
		if pins := s.orphanPins(uid, known); len(pins) > 0 {
			unrecorded[uid] = pins
			problems = append(problems, s.Gate.resume(uid))
			klog.FromContext(s.Work).Info("Found a claim of running pods without a record in the journal; their "+
				"containers may start again", "claimUID", uid, "pins", pins)
			continue
		}
		if _, held := s.Claims.Get(uid); held {
			problems = append(problems, s.Gate.suspend(uid))
			continue
		}
		problems = append(problems, s.Gate.close(uid))
	}
	for _, pins := range unrecorded { // after the loop, since the gates for a pod's claims share a pin
		for _, pin := range pins {
			known[filepath.Base(pin)] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unrecorded = unrecorded
	return errors.Join(problems...)
}

func (s *Sandboxes) orphanPins(uid string, known map[string]bool) []string {
	if _, held := s.Claims.Get(uid); held {
		return nil
	}
	pins, err := s.Gate.Namespaces(uid)
	if err != nil {
		return nil // its file is unreadable, so the gate is effectively closed
	}
	return slices.DeleteFunc(pins, func(pin string) bool {
		name := filepath.Base(pin)
		return filepath.Dir(pin) != filepath.Clean(s.PinDir) || !host.IsPinName(name) || known[name] ||
			!s.Executor.Host.Exists(pin)
	})
}

// removeUnknownPins removes the pins that are neither in the journal nor in an open gate, together with the adjacent
// temporary namespaces for devices that are being returned: if a driver is killed while it returns a device, the device
// stays in such a namespace. Pods with unknown pins keep running, because the runtime keeps their namespaces alive.
// However, once such a pod has terminated, the kernel returns its devices to the host only if nothing else, such as a
// pin, keeps the namespace alive.
func (s *Sandboxes) removeUnknownPins(known map[string]bool) error {
	entries, err := os.ReadDir(s.PinDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	problems := []error{err}
	for _, entry := range entries {
		name := entry.Name()
		if host.IsPinName(name) && !known[host.PinOf(name)] && !s.KeepsLeftover(name) {
			problems = append(problems, s.Executor.Host.Unpin(filepath.Join(s.PinDir, name)))
		}
	}
	return errors.Join(problems...)
}

// KeepsLeftover reports whether a pin belongs to a step that could not be rolled back: its namespace may contain a
// device, and retrying the rollback requires the pin.
func (s *Sandboxes) KeepsLeftover(name string) bool {
	return slices.ContainsFunc(s.Executor.Leftovers(),
		func(leftover executor.Leftover) bool { return host.IsPinOf(name, leftover.Attachment.Pin) })
}
