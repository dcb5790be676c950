package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// sandboxes keeps what is attached. It is safe for concurrent use.
type sandboxes struct {
	executor *cnichain.Executor
	claims   *claims
	gate     gate
	// gates are taken, by claim, by whoever opens or closes one.
	gates *keyedLocks
	// changed is told the claims whose status may be different; failed about an attempt that failed.
	changed func(claimUID string)
	failed  func(pod cnichain.Pod, claims []ClaimRecord, err error, again time.Duration)
	// describe writes down for the containers of claims what is attached, before they are created.
	describe func(ctx context.Context, claims []ClaimRecord)
	// late is told of a pod that was attached after RunPodSandbox has returned: kubelet has to be woken.
	late    func(pod cnichain.Pod, claims []ClaimRecord)
	metrics *metrics
	node    string
	bootID  string
	pinDir  string
	clock   clock.WithTicker
	// chains bounds how many chains run at once.
	chains chan struct{}
	// work ends when the driver stops: then nothing is tried again. What runs is finished.
	work context.Context

	mu        sync.Mutex
	byID      map[string]*sandbox
	releasing map[string]int  // claims that are being unprepared
	missed    map[string]bool // sandboxes that started while we were away, and are still there
	closing   bool
	born      uint64 // of the last sandbox
	wait      sync.WaitGroup
}

func newSandboxes(work context.Context, executor *cnichain.Executor, claims *claims, claimGate gate, clock clock.WithTicker) *sandboxes {
	return &sandboxes{
		work: work, executor: executor, claims: claims, gate: claimGate, clock: clock, gates: newKeyedLocks(),
		chains: make(chan struct{}, maxChains), byID: map[string]*sandbox{}, releasing: map[string]int{}, missed: map[string]bool{},
	}
}

// recover takes over what an earlier driver left: what was ready at this boot stays, everything else is undone in the
// background. Every gate is set right before it returns.
func (s *sandboxes) recover(attachments map[string]*cnichain.Attachment) error {
	pins := map[string]bool{}
	for _, id := range sortedKeys(attachments) {
		box := recovered(attachments[id], s.bootID)
		pins[filepath.Base(attachments[id].Pin)] = true
		s.mu.Lock()
		s.byID[id] = box
		s.mu.Unlock()
	}
	open := map[string]bool{}
	problems := []error{}
	if err := s.unpinOthers(pins); err != nil { // a leak, and no reason not to serve
		klog.FromContext(s.work).Error(err, "Cannot remove old pins of network namespaces", "dir", s.pinDir)
	}
	for _, record := range s.claims.all() {
		open[record.Claim.UID] = s.attached(record.Claim.UID)
		problems = append(problems, s.syncGate(s.work, record.Claim.UID))
	}
	problems = append(problems, s.gate.closeOthers(open))
	for _, box := range s.list() {
		if box.isStopped() {
			s.detachUntilDone(box)
		}
	}
	return errors.Join(problems...)
}

// unpinOthers removes the pins of which the journal knows nothing. Their pods run on, in namespaces that the runtime
// keeps; but once a pod has gone, its devices come home only if nothing else keeps its namespace.
func (s *sandboxes) unpinOthers(known map[string]bool) error {
	entries, err := os.ReadDir(s.pinDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	problems := []error{err}
	for _, entry := range entries {
		if cnichain.IsPinName(entry.Name()) && !known[entry.Name()] {
			problems = append(problems, s.executor.Host.Unpin(filepath.Join(s.pinDir, entry.Name())))
		}
	}
	return errors.Join(problems...)
}

// syncGate opens the gate of a claim that is attached somewhere, and closes that of one that is not. It is called after
// every change of what is attached; whichever call is the last is right.
func (s *sandboxes) syncGate(ctx context.Context, claimUID string) error {
	unlock, err := s.gates.lock(ctx, claimUID)
	if err != nil {
		return err
	}
	defer unlock()
	if steps := s.attachedSteps(claimUID); steps != nil {
		return s.gate.open(claimUID, deviceNodes(steps, claimUID))
	}
	return s.gate.close(claimUID)
}

func (s *sandboxes) syncGates(ctx context.Context, claimUIDs []string) error {
	var problems []error
	for _, uid := range claimUIDs {
		problems = append(problems, s.syncGate(ctx, uid))
	}
	return errors.Join(problems...)
}

// goTracked runs work in the background, unless the driver stops.
func (s *sandboxes) goTracked(do func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.wait.Go(do)
	return true
}

// finishWork waits until what runs has ended; nothing begins any more.
func (s *sandboxes) finishWork() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.wait.Wait()
}

// begin registers a sandbox, or finds it. Refused are claims that are being released, and exclusive devices that another
// pod's sandbox holds.
func (s *sandboxes) begin(id string, pod cnichain.Pod, records []ClaimRecord) (box *sandbox, isNew bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if box, known := s.byID[id]; known {
		return box, false, nil
	}
	if err := s.mayBegin(pod, records); err != nil {
		return nil, false, err
	}
	return s.register(id, pod, records), true, nil
}

// beginMissed registers a sandbox that started while we were away. It is refused if the sandbox has ended, or the pod has
// another: the runtime's list may be old, and the other is the live one.
func (s *sandboxes) beginMissed(id string, pod cnichain.Pod, records []ClaimRecord) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.missed[id] {
		return nil, errStopped
	}
	for _, other := range s.byID { // also of this sandbox, if what a crash left of it is being undone
		if other.pod.UID == pod.UID {
			return nil, fmt.Errorf("pod %s has the sandbox %s", pod, other.id)
		}
	}
	if err := s.mayBegin(pod, records); err != nil {
		return nil, err
	}
	delete(s.missed, id)
	return s.register(id, pod, records), nil
}

// expectMissed says which sandboxes are there, as the runtime lists them.
func (s *sandboxes) expectMissed(ids map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed = maps.Clone(ids)
}

// isMissed says whether a sandbox is still to be attached: neither begun nor stopped since it was listed.
func (s *sandboxes) isMissed(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missed[id]
}

// mayBegin is called with the lock held.
func (s *sandboxes) mayBegin(pod cnichain.Pod, records []ClaimRecord) error {
	if s.closing {
		return errors.New("the driver is stopping: the next one attaches the pod")
	}
	for i := range records {
		uid := records[i].Claim.UID
		if _, held := s.claims.get(uid); !held || s.releasing[uid] > 0 {
			return fmt.Errorf("claim %s is being released", records[i].Claim)
		}
		if !exclusive(&records[i]) {
			continue
		}
		for _, other := range s.byID {
			if other.pod.UID != pod.UID && other.uses(uid) {
				return fmt.Errorf("claim %s has an exclusive device that pod %s holds: a second pod must wait or use a claim of its own", records[i].Claim, other.pod)
			}
		}
	}
	return nil
}

func (s *sandboxes) register(id string, pod cnichain.Pod, records []ClaimRecord) *sandbox {
	box := newSandbox(id, pod, s.newAttachment(id, pod, records))
	s.born++
	box.born = s.born
	s.byID[id] = box
	return box
}

func (s *sandboxes) newAttachment(id string, pod cnichain.Pod, records []ClaimRecord) *cnichain.Attachment {
	plans := make([]cnichain.Plan, 0, len(records))
	for _, record := range records {
		plans = append(plans, record.Plans...)
	}
	attachment := cnichain.NewAttachment(id, pod, plans)
	attachment.BootID, attachment.CreatedAt = s.bootID, s.clock.Now()
	attachment.Pin = filepath.Join(s.pinDir, cnichain.PinName(id, attachment.CreatedAt))
	return attachment
}

func exclusive(record *ClaimRecord) bool {
	for _, device := range record.Devices {
		if device.Exclusive {
			return true
		}
	}
	return false
}

// state says whether a sandbox is known, whether it is attached, and why not.
func (s *sandboxes) state(id string) (known, ready bool, failure error) {
	box := s.find(id)
	if box == nil {
		return false, false, nil
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	return true, box.ready, box.failure
}

// attached says whether any ready sandbox has the claim.
func (s *sandboxes) attached(claimUID string) bool { return s.attachedSteps(claimUID) != nil }

// deviceNodes are those that the containers of a claim get, each once.
func deviceNodes(steps []cnichain.StepRecord, claimUID string) []string {
	var nodes []string
	for i := range steps {
		if steps[i].Claim.UID == claimUID {
			nodes = append(nodes, steps[i].DeviceNodes...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// attachedSteps returns the steps, with their results, of the first ready sandbox that has the claim.
func (s *sandboxes) attachedSteps(claimUID string) []cnichain.StepRecord {
	for _, box := range s.list() {
		if steps := box.steps(claimUID); steps != nil {
			return steps
		}
	}
	return nil
}

func (s *sandboxes) find(id string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

func (s *sandboxes) forget(box *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[box.id] == box {
		delete(s.byID, box.id)
	}
}

func (s *sandboxes) list() []*sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	boxes := make([]*sandbox, 0, len(s.byID))
	for _, id := range sortedKeys(s.byID) {
		boxes = append(boxes, s.byID[id])
	}
	return boxes
}

func (s *sandboxes) logger(box *sandbox) klog.Logger {
	return klog.FromContext(s.work).WithValues("pod", box.pod.String(), "sandbox", box.id)
}
