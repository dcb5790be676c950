package attach

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// connection is the state of one connection to the runtime: the sandboxes listed at its start, and the results of
// comparing them. A new connection starts from scratch, since the state of an earlier connection or driver process may
// be outdated. It is guarded by the lock of Sandboxes.
type connection struct {
	// live is false while the driver is not connected to the runtime; the connection is then empty.
	live bool
	// listed maps sandbox IDs to the sandboxes' network namespaces.
	listed map[string]string
	// confirmed contains the sandboxes whose pinned network namespace is the one that the runtime reports.
	confirmed sets.Set[*sandbox]
	// unsynced contains sandboxes that started while the driver was down, still exist, and must be attached.
	unsynced sets.Set[string]
}

func newConnection(listed map[string]string) *connection {
	return &connection{listed: maps.Clone(listed), confirmed: sets.New[*sandbox](), unsynced: sets.New[string]()}
}

// has reports whether the runtime has reported the sandbox on this connection.
func (c *connection) has(box *sandbox) bool { return c.confirmed.Has(box) || c.listed[box.id] != "" }

// Disconnect must be called when the runtime stops reporting new sandboxes. It closes the gates: if a pod's sandbox
// were replaced in the meantime, nothing would trigger the attachment of the new sandbox.
func (s *Sandboxes) Disconnect() error {
	s.mu.Lock()
	s.connection = newConnection(nil)
	s.mu.Unlock()
	return s.syncAllGates()
}

func (s *Sandboxes) isConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connection.live
}

// confirmed returns the confirmed sandboxes, sorted by ID, and whether the runtime is connected.
func (s *Sandboxes) confirmed() (boxes []*sandbox, connected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(s.listLocked(), func(box *sandbox) bool { return !s.connection.confirmed.Has(box) }),
		s.connection.live
}

// beginUnsynced registers a sandbox that started while no driver was connected to the runtime. Because the runtime's
// list may be outdated, it returns an error if the sandbox has since been stopped or if the pod has another sandbox
// that may be the live one. The other sandbox is not live if its namespace no longer exists, or if the runtime lists
// this sandbox but not the other one.
func (s *Sandboxes) beginUnsynced(
	id string, pod executor.Pod, netns string, records []claims.Record,
) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.connection.live:
		return nil, errors.New("not connected to the container runtime (NRI)")
	case !s.connection.unsynced.Has(id):
		return nil, errStopped
	}
	for _, other := range s.byID {
		if other.pod.UID == pod.UID && other.id != id &&
			(!s.connection.has(other) || !s.Executor.Host.Exists(other.view().netns)) {
			other.set(func(b *boxState) { b.superseded = true })
		}
	}
	for _, other := range s.byID { // may include this sandbox itself, if it is being rolled back after a crash
		if other.pod.UID == pod.UID && (other.id == id || !other.view().superseded) {
			return nil, fmt.Errorf("pod %s has the sandbox %s", pod, other.id)
		}
	}
	if err := s.mayBegin(pod, records); err != nil {
		return nil, err
	}
	s.connection.unsynced.Delete(id)
	return s.register(id, pod, netns, records), nil
}

// ExpectUnsynced records the sandboxes that the runtime lists and that must be attached. Sandboxes that the runtime is
// stopping are not attached again: no container starts in them, and the runtime might not report their stop again.
func (s *Sandboxes) ExpectUnsynced(ids map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.connection.live {
		return // the list does not apply to the next connection
	}
	maps.DeleteFunc(s.stopped, func(id string, _ sets.Empty) bool { return !ids[id] })
	for id, isThere := range ids {
		if isThere && !s.stopped.Has(id) {
			s.connection.unsynced.Insert(id)
		}
	}
}

// ExpectAlso adds a running sandbox to the sandboxes that must be attached. It returns false if the sandbox is already
// among them, is registered, or is being stopped, or if the runtime is not connected.
func (s *Sandboxes) ExpectAlso(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.connection.live || s.byID[id] != nil || s.stopped.Has(id) || s.connection.unsynced.Has(id) {
		return false
	}
	s.connection.unsynced.Insert(id)
	return true
}

// IsUnsynced reports whether a sandbox must still be attached. This is the case if the sandbox has not been stopped and
// no attach has started since the runtime listed it.
func (s *Sandboxes) IsUnsynced(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connection.unsynced.Has(id)
}
