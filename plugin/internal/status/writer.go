package status

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

const (
	conditionReady = "Ready"
	// failureAge is how long a failure is kept if it does not recur. The kubelet retries the claims of a waiting pod
	// within two minutes, and the driver is not notified when a claim that is not prepared is deleted.
	failureAge = time.Hour
	// maxFailures limits the number of stored failures, since users can create failing claims at any rate.
	maxFailures = 1000
	// maxInterfaceName and maxHardwareAddress are the API's limits for networkData, in bytes.
	maxInterfaceName   = 256
	maxHardwareAddress = 128
)

// Writer writes the status of claims to the API server, in the background and with retries. The status is always
// computed from the records, so nothing is lost in a crash: after a restart, everything is written again.
type Writer struct {
	Config
	// manager is the field manager for the written fields. Each node has its own field manager: a claim may previously
	// have been on another node, and late writes from that node must not remove this node's fields.
	manager string
	queue   queue
	// atStart contains the claims that were already prepared when the driver started and whose status has not been
	// written since. Only Run uses it.
	atStart sets.Set[string]

	mu       sync.Mutex
	failures map[string]failure
	written  map[string][]deviceStatus
	// released contains, by UID, claims that continue to exist after their release and whose status must be cleared.
	released map[string]cnichain.Claim
}

type failure struct {
	claim    cnichain.Claim
	devices  []claims.HeldDevice
	reason   string
	message  string
	failedAt time.Time
}

type deviceStatus struct {
	pool, device, shareID string
	ready                 bool
	// since is the time of ready's last transition; it is zero while it is unknown.
	since           time.Time
	reason, message string
	network         *resourceapi.NetworkDeviceData
	// data is the driver's own JSON (see [Data]), or empty.
	data string
}

// Config contains the sources of the status and the client for writing it.
type Config struct {
	Client kubernetes.Interface
	Events record.EventRecorder
	Claims *claims.Store
	// Attachments provides the attached steps.
	Attachments *attach.Sandboxes
	Clock       clock.Clock
	// Node is the name of the node.
	Node string
}

// New creates the component; Run starts it.
func New(config Config) *Writer {
	return &Writer{
		Config: config, manager: fieldManager(config.Node), queue: newQueue(), atStart: sets.New[string](),
		failures: map[string]failure{}, written: map[string][]deviceStatus{}, released: map[string]cnichain.Claim{},
	}
}

// fieldManager returns the driver's name followed by the node's name. The API limits a field manager to 128 bytes.
func fieldManager(node string) string {
	const limit = 100
	if len(node) > limit {
		node = fmt.Sprintf("%x", sha256.Sum256([]byte(node)))
	}
	return v1alpha1.DriverName + "/" + node
}

// Changed requests an update of a claim's status and discards the claim's last failure.
func (s *Writer) Changed(claimUID string) {
	s.mu.Lock()
	delete(s.failures, claimUID)
	s.mu.Unlock()
	s.queue.Add(claimUID)
}

// ReasonPrepare is the reason reported for a claim whose preparation failed.
const ReasonPrepare = "PrepareFailed"

// Failed records the reason why a claim is not ready.
func (s *Writer) Failed(claim cnichain.Claim, devices []claims.HeldDevice, reason string, err error) {
	now := s.Clock.Now()
	hint := attachHint("claim/"+claim.Name, claim.Namespace, s.Node, err)
	if reason == ReasonPrepare {
		hint = PrepareHint(claim, err)
	}
	message := telemetry.WithHint(err.Error(), hint)
	s.mu.Lock()
	s.failures[claim.UID] = failure{claim: claim, devices: devices, reason: reason, message: message, failedAt: now}
	s.mu.Unlock()
	s.ForgetOld()
	s.queue.Add(claim.UID)
}

// Refused returns the claims that could not be prepared in the last attempt, sorted by UID. It does not set their Pods.
func (s *Writer) Refused() []nodestate.RefusedClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	var refused []nodestate.RefusedClaim
	for _, uid := range slices.Sorted(maps.Keys(s.failures)) {
		f := s.failures[uid]
		if f.reason != ReasonPrepare {
			continue
		}
		claim := nodestate.RefusedClaim{Claim: f.claim, Message: f.message, At: f.failedAt}
		for i := range f.devices {
			claim.Devices = append(claim.Devices, nodestate.AllocatedDevice{Pool: f.devices[i].Pool,
				Name: f.devices[i].Name, Consumed: f.devices[i].Consumed})
		}
		refused = append(refused, claim)
	}
	return refused
}

// ForgetOld removes failures that have not recurred for a long time and, if there are too many failures, the oldest
// ones. The messages remain in the status of the claims.
func (s *Writer) ForgetOld() {
	now := s.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	uids := slices.Sorted(maps.Keys(s.failures))
	slices.SortStableFunc(uids, func(a, b string) int { return s.failures[a].failedAt.Compare(s.failures[b].failedAt) })
	for i, uid := range uids {
		if len(uids)-i <= maxFailures && now.Sub(s.failures[uid].failedAt) < failureAge {
			return
		}
		delete(s.failures, uid)
		delete(s.written, uid)
	}
}

// AttachFailed records why a pod has not been attached and reports the reason as an event on the pod and in the status
// of its claims. again is the delay before the next attempt, or 0 if there will be no further attempt. If a claim
// cannot be attached because another pod is using it, the claim itself has not failed, so its status continues to
// describe the other pod.
func (s *Writer) AttachFailed(pod executor.Pod, records []claims.Record, err error, again time.Duration) {
	reason := "AttachFailed"
	var step *executor.StepError
	if errors.As(err, &step) {
		reason = "StepFailed"
	}
	message := err.Error()
	if again > 0 {
		message += fmt.Sprintf("; next try in %s", again)
	}
	s.WarnPod(pod, "NetworkAttachFailed", telemetry.WithHint(message,
		attachHint("pod/"+pod.Name, pod.Namespace, s.Node, err)))
	var inUse *claimspec.InUseError
	used := errors.As(err, &inUse)
	for i := range records {
		if used && inUse.Claim == records[i].Claim.String() {
			continue
		}
		if step == nil || step.Claim.UID == records[i].Claim.UID {
			s.Failed(records[i].Claim, records[i].Devices, reason, err)
		}
	}
}

// DetachFailed reports, as an event on the pod, which steps could not be rolled back yet. Until they have been rolled
// back, the pod can neither terminate nor get another sandbox. DetachFailed does not update the status of the pod's
// claims, since they are being released.
func (s *Writer) DetachFailed(pod executor.Pod, err error) {
	s.WarnPod(pod, "NetworkDetachFailed", telemetry.WithHint("the network could not be detached yet, and the pod "+
		"waits: "+err.Error()+"; the driver retries until it abandons the step", attachHint("pod/"+pod.Name,
		pod.Namespace, s.Node, err)))
}

// InterfacesLost reports missing interfaces as an event on their pod. To users, such interfaces are reported as
// InterfaceLost in events and conditions; in the code, they are called missing.
func (s *Writer) InterfacesLost(pod executor.Pod, err error) {
	s.WarnPod(pod, "NetworkInterfaceLost", telemetry.WithHint(err.Error(), lostHint("pod/"+pod.Name, pod.Namespace)))
}

// WarnPod creates a warning event for a pod.
func (s *Writer) WarnPod(pod executor.Pod, reason, message string) {
	reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name,
		UID: types.UID(pod.UID)}
	s.Events.Event(reference, corev1.EventTypeWarning, reason, message)
}

// WarnNode creates a warning event for the node.
func (s *Writer) WarnNode(reason, message string) {
	// In events for a node, the kubelet and kubectl describe use the node's name as the UID.
	reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: s.Node, UID: types.UID(s.Node)}
	s.Events.Event(reference, corev1.EventTypeWarning, reason, message)
}

func (s *Writer) forget(claimUID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failures, claimUID)
	delete(s.written, claimUID)
	delete(s.released, claimUID)
}

// Clear removes the status of a released claim. A claim that several pods may share continues to exist for the next
// pod, without the state of the previous pod.
func (s *Writer) Clear(record *claims.Record) {
	s.forget(record.Claim.UID)
	if !record.Shareable {
		return // kube-controller-manager deletes the claim together with its pod
	}
	s.mu.Lock()
	s.released[record.Claim.UID] = record.Claim
	s.mu.Unlock()
	s.queue.Add(record.Claim.UID)
}

// Run writes the status of claims until ctx is done.
//
// After a restart, the status of all claims is written, since it is not known what the previous driver process wrote.
func (s *Writer) Run(ctx context.Context) error {
	for _, record := range s.Claims.All() {
		s.atStart.Insert(record.Claim.UID)
	}
	s.queue.run(ctx, s.Claims.All(), s.write, "Cannot write claim status; trying again")
	return nil
}

// write updates the status of a claim. If the API server rejects the network data, which comes from plugins, the
// conditions are written without it, since the conditions matter most to users.
func (s *Writer) write(ctx context.Context, uid string) error {
	claim, wanted, needed := s.next(uid)
	if !needed {
		return nil
	}
	err := s.setSince(ctx, claim, wanted, s.Clock.Now())
	if err == nil {
		err = s.apply(ctx, claim, wanted)
	}
	if apierrors.IsInvalid(err) && slices.ContainsFunc(wanted, func(e deviceStatus) bool { return e.network != nil }) {
		klog.FromContext(ctx).Error(err, "The API server rejects the network data in a claim's status; writing the "+
			"conditions only", "claim", claim.String())
		err = s.apply(ctx, claim, withoutNetworkData(wanted))
	}
	// The request contains the UID, so it fails with a conflict if another claim has the same name.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		s.atStart.Delete(uid) // the status is now known, or is no longer needed
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the claim is gone, or its name was reused
		s.forget(uid)
		return nil
	}
	if err != nil {
		return fmt.Errorf("claim %s: %w", claim, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(wanted) == 0 {
		delete(s.released, uid)
		delete(s.written, uid) // includes an entry from a write that was in progress when the claim was released
		return nil
	}
	_, held := s.Claims.Get(uid)
	if _, failed := s.failures[uid]; !held && !failed {
		return nil // the claim has since been released, so its entry would never be removed
	}
	// Store the computed entries even if some of the data was rejected, since the same data would be rejected again.
	s.written[uid] = wanted
	return nil
}

// next returns the status that a claim should have, and whether it must be written.
func (s *Writer) next(uid string) (claim cnichain.Claim, wanted []deviceStatus, needed bool) {
	claim, wanted = s.wanted(uid)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(wanted) == 0 {
		claim, needed = s.released[uid]
		return claim, nil, needed
	}
	keepSince(wanted, s.written[uid])
	return claim, wanted, !reflect.DeepEqual(s.written[uid], wanted)
}

// wanted computes the entries for a claim whose preparation has succeeded or failed.
func (s *Writer) wanted(uid string) (cnichain.Claim, []deviceStatus) {
	s.mu.Lock()
	failure, failed := s.failures[uid]
	s.mu.Unlock()
	claimRecord, prepared := s.Claims.Get(uid)
	claim, devices := claimRecord.Claim, claimRecord.Devices
	if !prepared {
		claim, devices = failure.claim, failure.devices
	}
	steps, missing := s.Attachments.AttachedTo(uid)
	var entries []deviceStatus
	for i := range devices {
		entry := deviceStatus{pool: devices[i].Pool, device: devices[i].Name, shareID: devices[i].ShareID}
		step := claimRecord.ExternalStep(&devices[i])
		switch {
		case step != nil:
			entry.ready, entry.reason = true, "Reserved"
			entry.message = "device " + step.Device.NetworkID + " is reserved; the pod network attaches it"
		case prepared && devices[i].Persona.IsBandwidth():
			continue // nothing is attached
		case steps != nil && attach.MissingOf(steps, missing, uid, &devices[i]) != "":
			entry.reason = "InterfaceLost"
			entry.message = telemetry.WithHint(attach.MissingText(attach.MissingOf(steps, missing, uid, &devices[i])),
				lostHint("claim/"+claim.Name, claim.Namespace))
		case steps != nil:
			entry.ready, entry.reason, entry.message = true, "Attached", "all steps of the topology are complete "+
				"and verified in the pod"
			entry.network = validNetworkData(attach.NetworkData(steps, uid, &devices[i]))
			entry.data = dataOf(attach.VerbsOf(steps, uid, &devices[i]))
		case failed:
			entry.reason, entry.message = failure.reason, failure.message
		default:
			continue
		}
		entries = append(entries, entry)
	}
	return claim, entries
}

// validNetworkData returns network data without values that the API rejects: plugins may return any value, and an
// invalid value would prevent the whole status from being written.
func validNetworkData(data *resourceapi.NetworkDeviceData) *resourceapi.NetworkDeviceData {
	if data == nil {
		return nil
	}
	valid := &resourceapi.NetworkDeviceData{}
	if len(data.InterfaceName) <= maxInterfaceName {
		valid.InterfaceName = data.InterfaceName
	}
	if len(data.HardwareAddress) <= maxHardwareAddress {
		valid.HardwareAddress = data.HardwareAddress
	}
	for _, address := range data.IPs {
		if len(validation.IsValidInterfaceAddress(nil, address)) == 0 {
			valid.IPs = append(valid.IPs, address)
		}
	}
	return valid
}

func withoutNetworkData(entries []deviceStatus) []deviceStatus {
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].network, entries[i].data = nil, ""
	}
	return entries
}

// apply writes only this driver's entries: the list is a map that is keyed by driver, pool, device and share.
//
// Force takes over fields from other managers, such as the driver on a node where the claim was used before. The API
// server removes fields that this manager applied earlier but no longer applies.
func (s *Writer) apply(ctx context.Context, claim cnichain.Claim, entries []deviceStatus) error {
	status := resourceapply.ResourceClaimStatus()
	for _, entry := range entries {
		value := metav1.ConditionFalse
		if entry.ready {
			value = metav1.ConditionTrue
		}
		device := resourceapply.AllocatedDeviceStatus().
			WithDriver(v1alpha1.DriverName).WithPool(entry.pool).WithDevice(entry.device).
			WithConditions(metaapply.Condition().WithType(conditionReady).WithStatus(value).
				WithReason(entry.reason).WithMessage(entry.message).WithLastTransitionTime(metav1.NewTime(entry.since)))
		if entry.shareID != "" {
			device.WithShareID(entry.shareID)
		}
		if entry.network != nil {
			device.WithNetworkData(resourceapply.NetworkDeviceData().
				WithInterfaceName(entry.network.InterfaceName).WithHardwareAddress(
				entry.network.HardwareAddress,
			).WithIPs(entry.network.IPs...))
		}
		if entry.data != "" {
			device.WithData(runtime.RawExtension{Raw: []byte(entry.data)})
		}
		status.WithDevices(device)
	}
	_, err := s.Client.ResourceV1().ResourceClaims(claim.Namespace).ApplyStatus(ctx,
		resourceapply.ResourceClaim(claim.Name, claim.Namespace).WithUID(types.UID(claim.UID)).WithStatus(status),
		metav1.ApplyOptions{FieldManager: s.manager, Force: true})
	return err
}
