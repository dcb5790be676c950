package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/keylock"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// shutdownError returns the error for an action, such as "attach pod ns/name", that is rejected because the driver is
// shutting down. The next driver process will perform the action when the kubelet or the user retries it.
func shutdownError(action string) error {
	return fmt.Errorf("cannot %s: the driver is shutting down; wait until it restarts", action)
}

// Config contains the dependencies of Sandboxes.
type Config struct {
	// Work is canceled when the driver shuts down: from then on, nothing is retried, but running work is completed.
	Work     context.Context
	Executor *executor.Executor
	Claims   *claims.Store
	Gate     Gate
	Clock    clock.WithTickerAndDelayedExecution
	Observer Observer
	Metrics  *prometheus.HistogramVec // from [NewMetrics]
	// Node is the name of the node; BootID is the ID of its current boot.
	Node, BootID string
	// PinDir is the directory in which network namespaces are pinned.
	PinDir string
}

// Observer is notified about the results for pods. Unless documented otherwise, its methods must return quickly,
// because chains wait for them.
type Observer interface {
	// DescribeClaims is called before the gates of claims open and describes the attached interfaces in the files for
	// the claims' containers. It returns false if a file could not be written, which does not prevent containers from
	// starting.
	DescribeClaims(ctx context.Context, records []claims.Record) (complete bool)
	// Attached is called once the gates of the claims are open.
	Attached(records []claims.Record)
	// AttachedLate is called after Attached if RunPodSandbox did not wait for the pod, because in this case the kubelet
	// must be notified.
	AttachedLate(pod executor.Pod, records []claims.Record)
	// AttachFailed is called after a failed attempt. The parameter again is the delay before the next attempt, or 0 if
	// there is none.
	AttachFailed(pod executor.Pod, records []claims.Record, err error, again time.Duration)
	// DetachFailed is called when steps of a pod's sandbox could not be rolled back, and whenever the reason changes.
	// The rollback is retried.
	DetachFailed(pod executor.Pod, err error)
	// InterfacesChanged is called when interfaces are missing from a pod, and with a nil error once all of them are
	// back.
	InterfacesChanged(pod executor.Pod, claimUIDs []string, err error)
}

// Sandboxes is the register of attachments by sandbox ID. It is safe for concurrent use.
//
// The lock guards the maps. It is acquired before the lock of a sandbox, never after it, and methods of claims.Store
// may be called while it is held.
type Sandboxes struct {
	Config
	// gates contains a lock for each claim, which is held while the claim's gate is opened or closed.
	gates *keylock.Locks
	// chains limits how many chains may start concurrently; byTopology limits how many chains may run for each
	// topology.
	chains     chan struct{}
	byTopology *keylock.Locks

	mu         sync.Mutex
	connection *connection // to the runtime
	byID       map[string]*sandbox
	releasing  map[string]int // claims that are being unprepared
	// stopped contains the sandboxes that the runtime has started to stop but has not removed yet. If the runtime is
	// killed while stopping them, it lists these sandboxes again after it restarts.
	stopped sets.Set[string]
	ended   ended
	// unrecorded maps the UIDs of claims whose records were lost with the journal to the pins in their gates.
	unrecorded map[string][]string
	closing    bool
	seq        uint64 // sequence number of the latest sandbox
	wait       sync.WaitGroup
}

// New creates the component. Nothing runs, and the observer is not called, before [Sandboxes.Recover] has been called.
func New(config Config) *Sandboxes {
	return &Sandboxes{
		Config: config, gates: keylock.New(1), chains: make(chan struct{}, maxChains),
		byTopology: keylock.New(maxTopology), byID: map[string]*sandbox{}, releasing: map[string]int{},
		connection: newConnection(nil), stopped: sets.New[string](), ended: ended{}, unrecorded: map[string][]string{},
	}
}

// NewMetrics registers and returns the histogram of attempts to attach and detach.
func NewMetrics(registry prometheus.Registerer) *prometheus.HistogramVec {
	attempts := telemetry.NewHistogram("attach_seconds",
		"Duration of one attempt to attach or detach all claims of a pod sandbox.", "operation", "result")
	registry.MustRegister(attempts)
	return attempts
}

// SyncGate opens a claim's gate for the sandboxes that the claim is attached to. It closes the gate if there is no such
// sandbox, and also while the driver is not connected to the runtime and therefore is not notified of new sandboxes. It
// must be called after every change to this state. Calls for the same claim are serialized, and each call reads the
// current state, so the last call always sets the gate correctly.
//
// Callers must change the state before they call SyncGate. In the opposite order, a concurrent call could open a gate
// based on outdated state.
func (s *Sandboxes) SyncGate(claimUID string) error {
	unlock, err := s.gates.Acquire(context.Background(), claimUID)
	if err != nil {
		return err
	}
	defer unlock()
	record, held := s.Claims.Get(claimUID)
	// Keep the gate file: it is the only remaining record of the claim and cannot be regenerated.
	if !held && s.IsUnrecorded(claimUID) {
		return nil
	}
	steps, pins := s.admitted(claimUID)
	switch {
	// The content stays on disk in case the journal is lost.
	case held && !s.isConnected():
		return s.Gate.suspend(claimUID)
	case !held || len(pins) == 0:
		return s.Gate.close(claimUID)
	}
	return s.Gate.open(&record, steps, pins)
}

// admitted returns the pins of the namespaces where a claim's containers may start, and the steps of the sandboxes in
// these namespaces. These steps determine which device nodes are added to the containers.
func (s *Sandboxes) admitted(claimUID string) (steps [][]executor.StepRecord, pins []string) {
	boxes, connected := s.confirmed()
	if !connected {
		return nil, nil
	}
	for _, box := range boxes {
		if ofBox, pin := box.view().admits(claimUID); pin != "" {
			pins, steps = append(pins, pin), append(steps, ofBox)
		}
	}
	return steps, append(pins, s.unrecordedPinsOf(claimUID)...)
}

func (s *Sandboxes) syncGates(claimUIDs []string) error {
	var problems []error
	for _, uid := range claimUIDs {
		problems = append(problems, s.SyncGate(uid))
	}
	return errors.Join(problems...)
}

func (s *Sandboxes) syncAllGates() error {
	uids, err := s.Gate.claims()
	for _, record := range s.Claims.All() {
		if !slices.Contains(uids, record.Claim.UID) {
			uids = append(uids, record.Claim.UID)
		}
	}
	return errors.Join(err, s.syncGates(uids))
}

// GoTracked starts do in the background and returns true. If the driver is shutting down, it returns false without
// starting do.
//
// The lock is held during Go, so that FinishWork cannot start waiting between the check and the increment.
func (s *Sandboxes) GoTracked(do func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.wait.Go(do)
	return true
}

// RunToTheEnd runs do, which FinishWork waits for, and returns its result. If the driver is shutting down, it does not
// run do, but returns an error that names the action, such as "release the claim".
func (s *Sandboxes) RunToTheEnd(action string, do func() error) error {
	result := make(chan error, 1)
	if !s.GoTracked(func() { result <- do() }) {
		return shutdownError(action)
	}
	return <-result
}

// FinishWork prevents new work from starting and waits until running work has finished.
func (s *Sandboxes) FinishWork() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.wait.Wait()
}

// begin registers a sandbox, or returns it if it is already registered. It rejects claims that are being released and
// claims whose exclusive devices are in use by another pod's sandbox.
func (s *Sandboxes) begin(
	id string, pod executor.Pod, netns string, records []claims.Record,
) (box *sandbox, isNew bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if box, known := s.byID[id]; known {
		return box, false, nil
	}
	if err := s.mayBegin(pod, records); err != nil {
		return nil, false, err
	}
	return s.register(id, pod, netns, records), true, nil
}

// mayBegin returns an error if a sandbox must not be registered. The caller must hold the lock.
func (s *Sandboxes) mayBegin(pod executor.Pod, records []claims.Record) error {
	if s.closing {
		return shutdownError("attach pod " + pod.String())
	}
	for i := range records {
		uid := records[i].Claim.UID
		if _, held := s.Claims.Get(uid); !held || s.releasing[uid] > 0 {
			return fmt.Errorf("cannot attach claim %s: it is being released; wait until the pod is created again",
				records[i].Claim)
		}
		if !exclusive(&records[i]) {
			continue
		}
		for _, other := range s.byID {
			if other.pod.UID != pod.UID && other.view().uses(uid) {
				return &claimspec.InUseError{Claim: records[i].Claim.String(), Pod: other.pod.String()}
			}
		}
	}
	return nil
}

// register adds a sandbox that exists in the runtime. The caller must hold the lock. A pod has only one sandbox at a
// time (the kubelet stops the old one first), so no container may start in an older one.
func (s *Sandboxes) register(id string, pod executor.Pod, netns string, records []claims.Record) *sandbox {
	for _, other := range s.byID {
		if other.pod.UID == pod.UID {
			other.set(func(b *boxState) { b.superseded = true })
		}
	}
	pod.Annotations = usedAnnotations(pod.Annotations, records)
	box := newSandbox(id, pod, s.newAttachment(id, pod, records))
	s.seq++
	box.seq, box.netns = s.seq, netns
	s.byID[id] = box
	s.connection.confirmed.Insert(box)
	if last, failed := s.ended[pod.UID]; failed {
		box.last = &last
	}
	delete(s.ended, pod.UID)
	return box
}

// newAttachment returns a new record of all of a sandbox's chains. The pin's name contains the time, so two attempts
// for the same sandbox never use the same path.
func (s *Sandboxes) newAttachment(id string, pod executor.Pod, records []claims.Record) *executor.Attachment {
	plans := make([]cnichain.Plan, 0, len(records))
	for _, record := range records {
		plans = append(plans, record.Plans...)
	}
	attachment := executor.NewAttachment(id, pod, plans)
	attachment.BootID, attachment.CreatedAt = s.BootID, s.Clock.Now()
	attachment.Pin = filepath.Join(s.PinDir, host.PinName(id, attachment.CreatedAt))
	return attachment
}

func usedAnnotations(annotations map[string]string, records []claims.Record) map[string]string {
	var used map[string]string
	for i := range records {
		for j := range records[i].Plans {
			for _, wanted := range records[i].Plans[j].WantedNetworks() {
				if used == nil {
					used = map[string]string{}
				}
				used[wanted.Annotation] = annotations[wanted.Annotation]
			}
		}
	}
	return used
}

func exclusive(record *claims.Record) bool {
	return slices.ContainsFunc(record.Devices, func(device claims.HeldDevice) bool { return device.Exclusive })
}

// Knows reports whether a sandbox is registered.
func (s *Sandboxes) Knows(id string) bool { return s.find(id) != nil }

// State reports whether a sandbox is known and whether it is attached. failure is the error from the last failed
// attempt.
func (s *Sandboxes) State(id string) (known, ready bool, failure error) {
	box := s.find(id)
	if box == nil {
		return false, false, nil
	}
	now := box.view()
	return true, now.phase.isAttached() && !now.superseded, now.failure
}

// Admits reports whether a claim's gate allows containers to start in a sandbox.
func (s *Sandboxes) Admits(claimUID, id string) bool {
	box := s.find(id)
	if box == nil {
		return false
	}
	now := box.view()
	_, pin := now.admits(claimUID)
	return pin != "" || s.AdmitsUnrecorded(claimUID, now.netns)
}

// deviceNodes returns the device nodes for containers that name the given part of a claim, collected from all of the
// claim's sandboxes, without duplicates.
func deviceNodes(record *claims.Record, sandboxes [][]executor.StepRecord, part Part) []string {
	var nodes []string
	for _, steps := range sandboxes {
		for _, i := range stepsOfPart(record, steps, part) {
			nodes = append(nodes, steps[i].Files()...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// AttachedSteps returns the steps, including their results, of the first ready sandbox that the claim is attached to.
// It returns nil if several pods use the claim, since their interfaces differ.
func (s *Sandboxes) AttachedSteps(claimUID string) []executor.StepRecord {
	users := s.Users(claimUID)
	if slices.ContainsFunc(users, func(pod executor.Pod) bool { return pod.UID != users[0].UID }) {
		return nil
	}
	steps, _ := s.AttachedTo(claimUID)
	return steps
}

// AttachedTo returns the steps of the first ready sandbox that the claim is attached to and, by step index, the
// interfaces that are missing from the sandbox's pod.
func (s *Sandboxes) AttachedTo(claimUID string) (steps []executor.StepRecord, missing map[int]string) {
	for _, box := range s.list() {
		now := box.view()
		if steps := now.steps(claimUID); steps != nil {
			return steps, now.missingOf(claimUID)
		}
	}
	return nil, nil
}

// Users returns the pods in which steps of a claim may be attached.
func (s *Sandboxes) Users(claimUID string) []executor.Pod {
	var pods []executor.Pod
	for _, box := range s.list() {
		if box.view().uses(claimUID) {
			pods = append(pods, box.pod)
		}
	}
	return pods
}

// IsUsedSinceBoot reports whether a claim is attached to a sandbox from this boot, or is being attached or detached.
func (s *Sandboxes) IsUsedSinceBoot(claimUID string) bool {
	return slices.ContainsFunc(s.list(), func(box *sandbox) bool {
		return box.boot == s.BootID && box.view().uses(claimUID)
	})
}

// Count returns the number of registered sandboxes.
func (s *Sandboxes) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}

// NamespaceExists reports whether a network namespace exists at a path.
func (s *Sandboxes) NamespaceExists(path string) bool { return s.Executor.Host.Exists(path) }

func (s *Sandboxes) find(id string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// forget removes a sandbox from the register, unless its ID now refers to a newer object: a sandbox whose namespace has
// changed is rolled back and may be registered again under the same ID.
func (s *Sandboxes) forget(box *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[box.id] == box {
		delete(s.byID, box.id)
	}
	s.connection.confirmed.Delete(box)
}

// list returns a copy of the register, sorted by ID, so that callers can work without the lock and can log and write
// files in a stable order. By the time the caller uses the copy, some of its sandboxes may have been removed from the
// register.
func (s *Sandboxes) list() []*sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listLocked()
}

func (s *Sandboxes) listLocked() []*sandbox {
	boxes := make([]*sandbox, 0, len(s.byID))
	for _, id := range slices.Sorted(maps.Keys(s.byID)) {
		boxes = append(boxes, s.byID[id])
	}
	return boxes
}

func (s *Sandboxes) logger(box *sandbox) klog.Logger {
	return klog.FromContext(s.Work).WithValues("pod", box.pod.String(), "sandbox", box.id)
}

// HasPin reports whether a pin belongs to a sandbox.
func (s *Sandboxes) HasPin(name string) bool {
	return slices.ContainsFunc(s.list(), func(box *sandbox) bool { return host.IsPinOf(name, box.view().pin) })
}

// UnpinUnknown removes a pin that does not belong to any sandbox. It holds the lock, for less than a millisecond, so
// that no sandbox with this pin can be registered in the meantime.
func (s *Sandboxes) UnpinUnknown(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := filepath.Base(path)
	if s.isUnrecordedPin(name) || slices.ContainsFunc(s.listLocked(),
		func(box *sandbox) bool { return host.IsPinOf(name, box.view().pin) }) {
		return nil
	}
	return s.Executor.Host.Unpin(path)
}
