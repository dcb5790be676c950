package executor

import (
	"encoding/json"
	"fmt"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// Pod names the pod that owns a sandbox.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Annotations are the pod's as the runtime has them: they say which networks it selects. They are not kept, since
	// nothing looks at them once interfaces have their names.
	Annotations map[string]string `json:"-"`
}

// String is namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Phase of an attachment.
type Phase string

const (
	// PhaseAttaching means that steps may have been run; a crash here is undone.
	PhaseAttaching Phase = "Attaching"
	// PhaseReady means that every step is there and verified.
	PhaseReady Phase = "Ready"
	// PhaseDetaching means that the attachment is being undone, and nothing else may be done with it.
	PhaseDetaching Phase = "Detaching"
)

// StepPhase is the phase of a step in an attachment. A step goes from Planned over Adding, Added and Deleting to
// Deleted. A step that never began goes from Planned to Deleted directly. After a crash, Adding and Added are
// equivalent unless the attachment is Ready: the step is rolled back.
type StepPhase string

const (
	// StepPlanned means that the plugin was not called: there is nothing to undo. It does not mean that in a record of
	// an earlier boot where the step was announced.
	StepPlanned StepPhase = "Planned"
	// StepAdding means that ADD was about to be called, and may or may not have had an effect.
	StepAdding StepPhase = "Adding"
	// StepAdded means that ADD succeeded and its interface was seen.
	StepAdded StepPhase = "Added"
	// StepDeleting means that DEL was about to be called, and may or may not have had an effect.
	StepDeleting StepPhase = "Deleting"
	// StepDeleted means that nothing of the step is left: DEL succeeded, and the device, if it is exclusive, is on the
	// host. From now on the device may be another's, so the step is never looked at again.
	StepDeleted StepPhase = "Deleted"
)

// Attachment is the durable record of the steps for one pod sandbox. The key is the sandbox, not the pod: a pod may get
// a second sandbox before the first is gone.
//
// The JSON names are a contract with the journals of earlier drivers (testdata/records). Add and Del change the record
// while they run, so concurrent readers need a copy that was made before.
type Attachment struct {
	SandboxID string `json:"sandboxID"`
	Pod       Pod    `json:"pod"`
	// BootID is the kernel's boot at which the attachment was made: after another boot every namespace is gone.
	BootID string `json:"bootID"`
	// Pin is the path at which the sandbox's network namespace is kept, so that DEL finds it after the runtime has
	// let go of it.
	Pin string `json:"pin"`
	// NetNS is the runtime's path of the namespace. The runtime removes it when it ends the sandbox.
	NetNS string `json:"netNS,omitempty"`
	// NetNSID identifies the namespace in its boot, so that it can be pinned again if the pin is gone.
	NetNSID   string       `json:"netNSID,omitempty"`
	Phase     Phase        `json:"phase"`
	CreatedAt time.Time    `json:"createdAt"`
	Steps     []StepRecord `json:"steps"`

	// unsaved is true while the journal does not have what this record says, because it could not be written.
	unsaved bool
	// failingSince is when a DEL failed first in this process. It is not kept: a clock that jumps between two
	// processes, or a driver that was away, must not make of the next failure the last.
	failingSince time.Time
}

// StepRecord is the durable record of one step.
//
// The step of the plan is a part of the record, and with it the plugin's quirks and the device's baseline. A driver
// that starts after a crash undoes the step without topology, schema and claim, which may have changed or gone by then.
type StepRecord struct {
	Claim    cnichain.Claim    `json:"claim"`
	Topology string            `json:"topology"`
	Step     cnichain.PlanStep `json:"step"`
	// IfName is the interface in the pod that the step makes or works on.
	IfName string    `json:"ifName"`
	Phase  StepPhase `json:"phase"`
	// Announced is true if the step was written to disk before its turn (see beginStep). In a record of an earlier
	// boot, such a step may have begun although it is Planned here.
	Announced bool `json:"announced,omitempty"`
	// Stdin is the standard input of the plugin for ADD and DEL.
	Stdin json.RawMessage `json:"stdin,omitempty"`
	// Result is the result of the plugin in its own version; it is the prevResult of its DEL.
	Result json.RawMessage `json:"result,omitempty"`
	// Merged is the result merged over the results of the step's parents.
	Merged *types100.Result `json:"merged,omitempty"`
	// RDMA are the RDMA devices that the step gives to containers, as they were on the host.
	RDMA []cnichain.RDMADevice `json:"rdma,omitempty"`
	// DeviceNodes are the device files through which the pod's application uses the step's RDMA devices, or a device
	// that the step binds to another driver.
	DeviceNodes []string `json:"deviceNodes,omitempty"`
	// Verbs is how the application addresses the RDMA devices, as it was seen when all steps were done.
	Verbs *Verbs `json:"verbs,omitempty"`
	// Link is the interface as it was seen after ADD; nil when the plugin makes none.
	Link *cnichain.Link `json:"link,omitempty"`
	// Foreign is true when ADD failed because the pod has another's interface of this name, which DEL must not touch.
	Foreign bool `json:"foreign,omitempty"`
	// Epoch orders the attachments that have owned an exclusive device, from 1; 0 for steps without one.
	Epoch uint64 `json:"epoch,omitempty"`
	// Failures counts the DELs that have failed; the first was at FailingSince.
	Failures     int        `json:"failures,omitempty"`
	FailingSince *time.Time `json:"failingSince,omitempty"`
}

// Title is how people read about a step: its name, type and topology.
func (s *StepRecord) Title() string {
	return fmt.Sprintf("step %q (%s) of topology %s", s.Step.Name, s.Step.Type, s.Topology)
}

// NewAttachment makes the record of a sandbox from the plans of its claims, which must be in the order of the pod's
// resource claims. Nothing has been run yet; interface names are given by [AssignNames]. Steps and devices are shared
// with the plans, and so with attachments of other pods of the claim: they are replaced in a record, never changed in
// place.
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
// the change survives a crash of the process, but a crash of the machine only a moment later: after a power loss, the
// latest calls may be missing, but never an earlier call while a later one is present.
//
// The executor calls Save before steps that may leave data on a disk, and Note before all other steps, with the results
// so far. It attaches nothing while either fails. Deleting a missing record is not an error. Implementations are safe
// for concurrent use.
type Journal interface {
	Save(*Attachment) error
	Note(*Attachment) error
	Delete(sandboxID string) error
	// SaveLeftover stores a step that could not be rolled back, by its key.
	SaveLeftover(Leftover) error
	DeleteLeftover(key string) error
}
