package executor

import (
	"encoding/json"
	"slices"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// Pod identifies the pod that owns a sandbox.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Annotations are the pod's annotations as reported by the runtime. They list the networks that the pod selects.
	// They are needed only to assign interface names, so they are not stored.
	Annotations map[string]string `json:"-"`
}

// String returns namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Phase is the phase of an attachment.
type Phase string

const (
	// PhaseAttaching means that steps may have run; after a crash, the attachment is rolled back.
	PhaseAttaching Phase = "Attaching"
	// PhaseReady means that every step has completed and has been verified.
	PhaseReady Phase = "Ready"
	// PhaseDetaching means that the attachment is being rolled back and that no other operation is allowed.
	PhaseDetaching Phase = "Detaching"
)

// StepPhase is the phase of a step in an attachment. The order is Planned, Adding, Added, Deleting, Deleted. A step
// that never started goes directly from Planned to Deleted. After a crash, Adding and Added are equivalent unless the
// attachment is Ready: in both phases, the step is rolled back.
type StepPhase string

const (
	// StepPlanned means that the plugin has not been called, so there is nothing to roll back. The exception is an
	// announced step in a record from an earlier boot: that step may have started.
	StepPlanned StepPhase = "Planned"
	// StepAdding means that ADD was about to be called; it may or may not have had an effect.
	StepAdding StepPhase = "Adding"
	// StepAdded means that ADD succeeded and the step's interface was verified.
	StepAdded StepPhase = "Added"
	// StepDeleting means that DEL was about to be called; it may or may not have had an effect.
	StepDeleting StepPhase = "Deleting"
	// StepDeleted means that the step is completely rolled back: DEL succeeded, and an exclusive device is on the host.
	// From then on, the device may have another owner, so the step is never processed again.
	StepDeleted StepPhase = "Deleted"
)

// Attachment is the durable record of the steps for one pod sandbox. It is keyed by sandbox rather than by pod, because
// a pod may get a second sandbox before the first one is deleted.
//
// The JSON names must stay compatible with journals written by earlier driver versions (testdata/records). Add and Del
// modify the record while they run, so concurrent readers need a copy made beforehand.
type Attachment struct {
	SandboxID string `json:"sandboxID"`
	Pod       Pod    `json:"pod"`
	// BootID identifies the boot in which the attachment was created. After a reboot, its namespaces no longer exist.
	BootID string `json:"bootID"`
	// Pin is the path of the bind mount that keeps the sandbox's network namespace alive, so that DEL can find the
	// namespace after the runtime has removed its own path.
	Pin string `json:"pin"`
	// NetNS is the runtime's path to the namespace. The runtime removes this path when it stops the sandbox.
	NetNS string `json:"netNS,omitempty"`
	// NetNSID identifies the namespace within its boot, so that it can be pinned again if the pin is missing.
	NetNSID string `json:"netNSID,omitempty"`
	// DefaultRoutes are the pod's default routes before the first attempt to attach its sandbox (see routeCheck).
	DefaultRoutes map[string][]int `json:"defaultRoutes,omitempty"`
	Phase         Phase            `json:"phase"`
	CreatedAt     time.Time        `json:"createdAt"`
	Steps         []StepRecord     `json:"steps"`

	// unsaved is true if the last write to the journal failed, so the journal is out of date.
	unsaved bool
	// failingSince is the time of the first failed DEL in this process. It is not stored: otherwise, after a clock jump
	// or a long downtime of the driver, the next failure would immediately exceed GiveUpAfter.
	failingSince time.Time
}

// StepRecord is the durable record of one step.
//
// It includes the planned step with the plugin's quirks and the device's baseline, so a driver that starts after a
// crash can roll back the step without the topology, schema and claim, which may have been changed or deleted in the
// meantime.
type StepRecord struct {
	Claim    cnichain.Claim    `json:"claim"`
	Topology string            `json:"topology"`
	Step     cnichain.PlanStep `json:"step"`
	// IfName is the name of the pod interface that the step creates or modifies.
	IfName string    `json:"ifName"`
	Phase  StepPhase `json:"phase"`
	// Announced is true if the step was written to disk before its turn (see beginStep). In a record from an earlier
	// boot, an announced step may have started even though its phase is Planned.
	Announced bool `json:"announced,omitempty"`
	// Stdin is the plugin's standard input for ADD and DEL.
	Stdin json.RawMessage `json:"stdin,omitempty"`
	// Result is the plugin's result in the plugin's CNI version. It is passed to the plugin's DEL as prevResult.
	Result json.RawMessage `json:"result,omitempty"`
	// Merged is the result merged with the results of the step's parents.
	Merged *types100.Result `json:"merged,omitempty"`
	// RDMA lists the RDMA devices that the step provides to containers, as they were on the host.
	RDMA []cnichain.RDMADevice `json:"rdma,omitempty"`
	// DeviceNodes are the device files through which the pod's application uses the step's RDMA devices, or the device
	// that the step binds to another driver. See [StepRecord.Files] for all files.
	DeviceNodes []string `json:"deviceNodes,omitempty"`
	// Verbs is the information that applications need to address the RDMA devices. It is recorded after all steps have
	// completed.
	Verbs *Verbs `json:"verbs,omitempty"`
	// Link is the interface as it was after ADD; nil if the plugin does not create an interface.
	Link *cnichain.Link `json:"link,omitempty"`
	// Foreign is true if ADD failed because the pod already has an interface with this name that another process
	// created. DEL must not touch that interface.
	Foreign bool `json:"foreign,omitempty"`
	// Epoch numbers the successive owners of an exclusive device, starting at 1. It is 0 for steps without an exclusive
	// device.
	Epoch uint64 `json:"epoch,omitempty"`
	// Failures is the number of failed DELs. FailingSince is the time of the first failure.
	Failures     int        `json:"failures,omitempty"`
	FailingSince *time.Time `json:"failingSince,omitempty"`
}

// Files returns all device files exposed to containers for the step: those of its device and those listed in its
// topology.
func (s *StepRecord) Files() []string {
	files := slices.Clone(s.DeviceNodes)
	if s.Phase == StepAdded {
		for _, node := range s.Step.DeviceNodes {
			files = append(files, node.Path())
		}
	}
	return files
}

// Title describes the step in messages.
func (s *StepRecord) Title() string { return s.Step.Title(s.Topology) }

// NewAttachment creates the record for a sandbox from the plans of its claims, which must be in the order of the pod's
// resource claims. It runs no steps; [AssignNames] assigns interface names later. The record shares steps and devices
// with the plans, and therefore with the attachments of other pods that use the claim. Steps and devices may be
// replaced in a record but must never be modified.
func NewAttachment(sandboxID string, pod Pod, plans []cnichain.Plan) *Attachment {
	attachment := &Attachment{SandboxID: sandboxID, Pod: pod, Phase: PhaseAttaching}
	for _, plan := range plans {
		base := len(attachment.Steps)
		for _, step := range plan.Steps {
			parents := make([]int, len(step.DependsOn))
			for i, parent := range step.DependsOn {
				parents[i] = base + parent
			}
			step.DependsOn = parents
			attachment.Steps = append(attachment.Steps, StepRecord{
				Claim: plan.Claim, Topology: plan.Topology, Step: step, Phase: StepPlanned,
			})
		}
	}
	return attachment
}

// Journal stores attachments durably. When Save returns nil, the record is on disk. When Note or Delete returns nil,
// the change is safe from a process crash immediately, but from a machine crash only some time later. After a power
// loss, the most recent changes may be missing, but never a change that precedes one that survived.
//
// The executor calls Save before steps that may leave data on a disk, and Note before all other steps, in both cases
// with the results so far. If either fails during Add, the attachment is rolled back. Deleting a missing record is not
// an error. Implementations are safe for concurrent use.
type Journal interface {
	Save(*Attachment) error
	Note(*Attachment) error
	Delete(sandboxID string) error
	// SaveLeftover stores a step that could not be rolled back, keyed by the leftover's Key.
	SaveLeftover(Leftover) error
	DeleteLeftover(key string) error
}
