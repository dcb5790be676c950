package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/keylock"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery/linkkind"
)

// Exec runs CNI plugins. [PluginExec] is the production implementation. Implementations are safe for concurrent use.
type Exec interface {
	invoke.Exec
	// Call is like ExecPlugin, but also returns stderr and the exit code. If the plugin printed an error, the returned
	// error unwraps to *types.Error.
	Call(ctx context.Context, path string, stdin []byte, environ []string) (CallOutput, error)
	// Persists reports whether a call may leave state that survives a reboot, such as files. If it returns false, no
	// effect of the call survives a reboot.
	Persists(path, command string, stdin []byte) bool
}

// Options configures an executor. Exec, Host and Journal are required. All other fields are optional.
type Options struct {
	Exec    Exec
	Host    host.Host
	Journal Journal
	// Log receives every CNI call. It may be nil.
	Log Recorder
	// Dirs lists the directories to search for CNI plugins (CNI_PATH). The first match wins.
	Dirs []string
	// StepTimeout is the time limit for one CNI call. Default: 30 s.
	StepTimeout time.Duration
	// A step becomes a Leftover if its DEL has failed GiveUpAttempts times (default: 10), or if its DEL fails after its
	// attachment has been failing for GiveUpAfter (default: 5 min) in this process. OnLeftover, which may be nil, is
	// then called.
	GiveUpAttempts int
	GiveUpAfter    time.Duration
	OnLeftover     func(Leftover)
	// CheckFree returns an error if the node itself uses an exclusive device. It is called immediately before every ADD
	// that acquires the device, and must not use cached data. If CheckFree is nil, every device is considered free.
	CheckFree func(context.Context, *cnichain.Device) error
	Clock     clock.Clock
}

// Executor runs attachments. It is safe for concurrent use, but the CNI specification forbids parallel operations on
// one container, so callers must serialize the calls for each sandbox.
//
// owners and leftovers are indexes of the journal; [Executor.Load] fills them. As a safeguard, sandboxes makes a
// concurrent call for the same sandbox wait. byPF limits the calls for each physical function (see perPF). probed
// caches plugin versions. This cache never shrinks, since a replaced program gets a new key, but there are few programs
// on a node.
type Executor struct {
	Options
	templates template.Engine
	owners    owners
	leftovers leftovers
	byPF      *keylock.Locks
	sandboxes *keylock.Locks
	probed    sync.Map // of probeKey to cnichain.Plugin
	// returned contains the identities of the exclusive devices that this process has restored and that have not had a
	// new owner since then. While such a device is on the host, it is under the administrator's control, and the
	// administrator's changes must not be reverted.
	returned sync.Map
}

// New creates an executor without doing any I/O.
func New(options Options) *Executor {
	if options.StepTimeout == 0 {
		options.StepTimeout = 30 * time.Second
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Log == nil {
		options.Log = discard{}
	}
	options.GiveUpAttempts = cmp.Or(options.GiveUpAttempts, 10)
	options.GiveUpAfter = cmp.Or(options.GiveUpAfter, 5*time.Minute)
	return &Executor{
		Options: options, templates: template.New(),
		owners:    owners{devices: map[string]owner{}},
		leftovers: leftovers{byKey: map[string]Leftover{}, away: map[string]int{}},
		byPF:      keylock.New(perPF),
		sandboxes: keylock.New(1),
	}
}

// Add runs the steps of a new attachment in order and verifies each of them. netns is the sandbox's network namespace,
// and node is the name of the node. If an error occurs, everything is rolled back before Add returns. If the rollback
// fails, the error is an UndoError, and the attachment stays in the journal in [PhaseDetaching] for another
// [Executor.Del] call. The rollback does not stop when ctx ends.
//
// After any other error, nothing remains of the attachment. A sandbox with leftovers is rejected before anything is
// written.
func (e *Executor) Add(ctx context.Context, attachment *Attachment, netns, node string) error {
	release, err := e.sandboxes.Acquire(ctx, attachment.SandboxID)
	if err != nil {
		return err
	}
	defer release()
	if err := e.leftovers.checkSandbox(attachment.SandboxID); err != nil {
		return err
	}
	if err = e.add(ctx, attachment, netns, node); err == nil {
		return nil
	}
	// Allow one full call timeout for each step, and one more for all verifications.
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		time.Duration(len(attachment.Steps)+1)*e.StepTimeout)
	defer cancel()
	if undoErr := e.delAll(undo, attachment, nil); undoErr != nil {
		return &UndoError{Cause: err, Undo: undoErr}
	}
	return err
}

// add is Add without the rollback.
func (e *Executor) add(ctx context.Context, attachment *Attachment, netns, node string) error {
	boot, err := e.Host.Boot()
	if err != nil {
		return err
	}
	attachment.BootID = cmp.Or(attachment.BootID, boot)
	attachment.Phase, attachment.NetNS = PhaseAttaching, netns
	// While a namespace is held, the kernel does not reuse its ID for another namespace, so pin can compare IDs.
	held, release, err := e.Host.HoldNamespace(netns)
	if err != nil {
		return err
	}
	defer release()
	if attachment.NetNSID, err = e.Host.NamespaceID(held); err != nil {
		return err
	}
	seen, err := e.Host.Contents(held)
	if err != nil {
		return err
	}
	if err := AssignNames(attachment, seen.Links); err != nil {
		return err
	}
	routes := newRouteCheck(attachment, seen.DefaultRoutes)
	for i := range attachment.Steps {
		if seen, err = e.addStep(ctx, attachment, i, node, seen.Links); err != nil {
			return err
		}
		if err := routes.follow(attachment, i, &seen); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(attachment.Steps, func(record StepRecord) bool { return len(record.RDMA) > 0 }) {
		if err := e.note(attachment); err != nil { // the next call may take a while
			return err
		}
		e.readVerbs(ctx, attachment)
	}
	// This does not have to be durable: after a power loss, no pod is running.
	attachment.Phase = PhaseReady
	return e.note(attachment)
}

// addStep runs a step. The result is written in the next commit, together with the intention to run the next step, the
// Ready state, or the rollback. Nothing happens in between, so a crash before that commit has the same effect as a
// crash at the end of ADD. seen lists the pod's links before the step; addStep returns the links and the default routes
// after the step.
func (e *Executor) addStep(
	ctx context.Context, attachment *Attachment, i int, node string, seen []cnichain.Link,
) (after host.Contents, err error) {
	record := &attachment.Steps[i]
	if err := e.beginStep(ctx, attachment, record, node, seen); err != nil {
		return after, err
	}
	if i == 0 {
		if err := e.pin(attachment); err != nil {
			e.notBegun(record)
			return after, err
		}
	}
	if after, err = e.runStep(ctx, attachment, record); err != nil {
		return after, stepError(record, commandAdd, err)
	}
	record.Phase = StepAdded
	return after, nil
}

// runStep is the part of addStep that may have side effects. It returns the pod's links and default routes.
func (e *Executor) runStep(
	ctx context.Context, attachment *Attachment, record *StepRecord,
) (after host.Contents, err error) {
	if err := e.bindDriver(record); err != nil {
		return after, err
	}
	result, err := e.callAdd(ctx, attachment, record)
	if err != nil {
		if e.nameTaken(attachment, record, err) {
			record.Foreign = true
			_ = e.note(attachment) // if this fails, Del writes the record
		}
		return after, e.withMissingDevice(record.Step.Device, err)
	}
	if after, err = e.Host.Contents(attachment.Pin); err != nil {
		return after, err
	}
	if err := e.verify(attachment, record, result, after.Links); err != nil {
		return after, err
	}
	return after, e.attachRDMA(attachment, record)
}

// withMissingDevice extends a plugin's error if the device is no longer on the host. Exclusive devices have already
// been checked. For a shared device, the plugin is the first to notice that it is missing, and reports only "Link not
// found".
func (e *Executor) withMissingDevice(device *cnichain.Device, failure error) error {
	if device == nil || device.Exclusive {
		return failure
	}
	if _, err := e.Host.Snapshot(*device); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w; %w: if it does not return, delete the pod and its claim", failure, err)
	}
	return failure
}

// beginStep prepares a step, and records that the step may have side effects from now on. If beginStep fails, nothing
// has changed on the machine, so the step is still Planned, and DEL will not be called for it.
//
// It waits for the disk only if the plugin may leave data on a disk. In that case, it also announces the later steps of
// this kind, so that only the first such step has to wait.
func (e *Executor) beginStep(
	ctx context.Context, attachment *Attachment, record *StepRecord, node string, seen []cnichain.Link,
) error {
	if err := e.prepareStep(attachment, record, node, seen); err != nil {
		return stepError(record, commandAdd, err)
	}
	if err := e.acquireDevice(ctx, attachment, record); err != nil {
		return stepError(record, commandAdd, err)
	}
	if err := e.planRDMA(record); err != nil {
		e.owners.release(record)
		return stepError(record, commandAdd, err)
	}
	record.Phase = StepAdding
	write := e.note
	if e.persists(record) && !record.Announced {
		write = e.save
		e.announce(attachment, node)
	}
	if err := write(attachment); err != nil {
		e.notBegun(record)
		return err
	}
	return nil
}

// persists reports whether a step's ADD may leave state that survives a reboot.
func (e *Executor) persists(record *StepRecord) bool {
	return !record.Step.LeavesNoFiles && e.Exec.Persists(e.binary(&record.Step), commandAdd, record.Stdin)
}

// announce adds all later steps that may leave data on a disk to the next commit, so that they do not need commits of
// their own. This protects against a power loss, which may wipe out all later notes: DEL is then called for each of
// these steps, whether or not it was started, as CNI allows (CNI specification, section "DEL"). Without a power loss,
// the notes show which steps were started.
//
// Two kinds of steps are not announced: a step that depends on the result of another step has no configuration yet, and
// a step with an exclusive device has no epoch yet. Announced steps run as recorded, since the inputs to their
// configuration do not change in the meantime.
func (e *Executor) announce(attachment *Attachment, node string) {
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		if record.Phase != StepPlanned || len(record.Step.DependsOn) > 0 || record.Step.OwnsDevice() ||
			record.Step.BindsDriver() {
			continue
		}
		next := *record
		if e.configure(attachment, &next, node) == nil && e.persists(&next) {
			next.Announced = true
			*record = next
		}
	}
}

// notBegun reverts the record of a step that was never started.
func (e *Executor) notBegun(record *StepRecord) {
	record.Phase = StepPlanned
	e.owners.release(record)
}

// pin pins an attachment's namespace. It runs after the first commit, so that every pin has an owner after a crash; the
// rollback handles a missing pin (pinAgain). From then on, only the pin identifies the namespace: the runtime may have
// replaced the namespace at its own path since the check, and may remove that path at any time.
func (e *Executor) pin(attachment *Attachment) error {
	if err := e.Host.Pin(attachment.NetNS, attachment.Pin); err != nil {
		return err
	}
	id, err := e.Host.NamespaceID(attachment.Pin)
	if err == nil && id != attachment.NetNSID {
		err = fmt.Errorf("cannot attach sandbox %s: %s now refers to another network namespace; the sandbox has ended",
			attachment.SandboxID, attachment.NetNS)
	}
	return err
}

// bindDriver binds the device to the driver requested by the step. A virtual function that keeps its driver is reset so
// that it accepts any MAC address. The journal already states that the step may have effects.
func (e *Executor) bindDriver(record *StepRecord) (err error) {
	switch {
	case record.Step.BindsDriver():
		record.DeviceNodes, err = e.Host.BindDriver(*record.Step.Device)
	case record.Step.OwnsDevice() && record.Step.Device.VF != nil && !record.Step.Device.KeepsLink:
		err = e.Host.FreeAddress(*record.Step.Device)
	}
	return err
}

// nameTaken reports whether ADD failed because another process created an interface with the step's name after the name
// was checked. DEL would delete that interface. Plugins also report "file exists" for routes and addresses, so
// nameTaken inspects the link. The link is the step's own if it is the device itself, or if it is stacked on the device
// or on a parent step's interface.
//
// The message is the only clue: CNI has no error code for a name that is already in use (specification, section 5
// "Error"), and netlink's EEXIST reaches the driver only as text from the plugin. A false positive leaves a link in the
// pod until the pod's namespace is destroyed. A false negative deletes a link that the pod's own network may need.
func (e *Executor) nameTaken(attachment *Attachment, record *StepRecord, failure error) bool {
	text := strings.ToLower(failure.Error())
	exists := strings.Contains(text, "file exists") || strings.Contains(text, "already exists")
	if !record.Step.Makes || record.Step.BindsDriver() || !exists || strings.Contains(text, "route") {
		return false
	}
	links, err := e.Host.Links(attachment.Pin)
	if err != nil {
		return true // unknown; better to leave a link until its namespace is destroyed than to delete a foreign one
	}
	link := findLink(links, record.IfName)
	if link == nil {
		return false
	}
	device := record.Step.Device
	if device != nil && (isDevice(link, device) || isAbove(link, device.Index, true)) {
		return false
	}
	for _, parent := range record.Step.DependsOn {
		if made := attachment.Steps[parent].Link; made != nil && isAbove(link, made.Index, false) {
			return false
		}
	}
	return true
}

// isAbove reports whether a link was created on top of another link, in the same namespace or elsewhere. Indexes in
// different namespaces are not comparable, and the other end of a veth is not a parent.
func isAbove(link *cnichain.Link, index int, elsewhere bool) bool {
	return index != 0 && link.Parent == index && link.ParentElsewhere == elsewhere && !linkkind.IsPair(link.Kind)
}

// prepareStep sets the step's interface name and stdin, and checks that the name is free. If the name were taken, ADD
// would fail and the subsequent DEL would delete the other interface with that name.
//
// seen lists the pod's links after the previous step. They are not read again: only plugins and other processes that
// write to the pod's namespace can have changed them, and nameTaken handles those cases.
func (e *Executor) prepareStep(
	attachment *Attachment, record *StepRecord, node string, seen []cnichain.Link,
) error {
	if err := e.configure(attachment, record, node); err != nil {
		return err
	}
	for _, node := range record.Step.DeviceNodes {
		if err := e.Host.CheckDeviceNode(node.Path()); err != nil {
			return err
		}
	}
	if !record.Step.Makes {
		return nil
	}
	if link := findLink(seen, record.IfName); link != nil {
		return fmt.Errorf("pod %s has an interface %q already (index %d): change ifName of the step",
			attachment.Pod, record.IfName, link.Index)
	}
	return nil
}

// configure sets the step's interface name and stdin.
func (e *Executor) configure(attachment *Attachment, record *StepRecord, node string) error {
	resolve := templateValues(attachment, record, node)
	switch {
	case template.Contains(record.Step.IfName) && !isNamedByPod(record):
		name, err := e.templates.RenderString(record.Step.IfName, "ifName", resolve)
		if err != nil {
			return err
		}
		record.IfName = name
	case record.IfName == "" && len(record.Step.DependsOn) > 0: // the parent's name was a template
		record.IfName = attachment.Steps[record.Step.DependsOn[0]].IfName
	}
	if err := v1alpha1.CheckInterfaceName(record.IfName); err != nil {
		return err
	}
	config, err := e.templates.RenderJSON(record.Step.Config, resolve)
	if err != nil {
		return err
	}
	record.Stdin, err = stdin(attachment, record, config)
	return err
}
