package chainrun

import (
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// narrator is a journal that prints the changes that it records. Only the journal observes when a step starts and how
// it ends, including its verification by the executor. It is not safe for concurrent use.
//
// Save or Note is called before and after a step, so the time between two calls is the duration of the step. began is
// set after a record is written, so that the duration does not include the time for writing.
type narrator struct {
	executor.Journal
	out   *printer.Printer
	clock clock.PassiveClock

	began time.Time
	// attachment is the attachment that was most recently watched or written.
	attachment *executor.Attachment
	known      []stepStatus
	steps      []stepReport
}

// stepStatus is the last printed status of a step.
type stepStatus struct {
	phase    executor.StepPhase
	failures int
}

// stepReport is the outcome of a step.
type stepReport struct {
	Step      string `json:"step"`
	Instance  int    `json:"instance"`
	Type      string `json:"type"`
	Interface string `json:"interface,omitempty"`
	Device    string `json:"device,omitempty"`
	// Added and Deleted are true if ADD and DEL succeeded; AddTime and DelTime are in milliseconds.
	Added   bool  `json:"added"`
	AddTime int64 `json:"addMilliseconds,omitempty"`
	Deleted bool  `json:"deleted"`
	DelTime int64 `json:"delMilliseconds,omitempty"`
	// Result is the plugin's result for ADD.
	Result any `json:"result,omitempty"`
}

// watch records the state of an attachment, so that only later changes are printed. It is called again before an
// attachment is undone. In that case the report keeps its steps, so that it contains the durations of both ADD and DEL.
func (n *narrator) watch(attachment *executor.Attachment) {
	n.attachment = attachment
	n.known = make([]stepStatus, len(attachment.Steps))
	if len(n.steps) != len(attachment.Steps) {
		n.steps = make([]stepReport, len(attachment.Steps))
	}
	for i := range attachment.Steps {
		n.known[i] = statusOf(&attachment.Steps[i])
		if n.known[i].phase == executor.StepAdding {
			n.known[i].phase = executor.StepDeleting // an earlier process called ADD
		}
	}
	n.began = n.clock.Now()
	n.announce(attachment)
}

func statusOf(record *executor.StepRecord) stepStatus {
	return stepStatus{phase: record.Phase, failures: record.Failures}
}

// Save implements executor.Journal.
func (n *narrator) Save(attachment *executor.Attachment) error {
	return n.written(attachment, n.Journal.Save)
}

// Note implements executor.Journal.
func (n *narrator) Note(attachment *executor.Attachment) error {
	return n.written(attachment, n.Journal.Note)
}

func (n *narrator) written(attachment *executor.Attachment, write func(*executor.Attachment) error) error {
	n.attachment = attachment
	n.reportSteps()
	err := write(attachment)
	n.began = n.clock.Now()
	if err == nil {
		n.announce(attachment)
	}
	return err
}

// Delete implements executor.Journal. Deleting an attachment records that its last step has been undone.
func (n *narrator) Delete(sandboxID string) error {
	if n.attachment != nil && n.attachment.SandboxID == sandboxID {
		n.reportSteps()
	}
	return n.Journal.Delete(sandboxID)
}

// reportSteps prints the outcome of each step that has changed. The executor changes the attachment in place, so known
// holds the previous state.
func (n *narrator) reportSteps() {
	took := n.clock.Since(n.began)
	n.out.EndPending()
	for i := range n.attachment.Steps {
		record := &n.attachment.Steps[i]
		previous := n.known[i]
		n.known[i] = statusOf(record)
		if previous != n.known[i] {
			n.reportStep(n.attachment, i, previous, took)
		}
	}
}

// reportStep prints the outcome of a step that has changed.
func (n *narrator) reportStep(attachment *executor.Attachment, i int, previous stepStatus, took time.Duration) {
	record, report := &attachment.Steps[i], &n.steps[i]
	report.Step, report.Instance, report.Type, report.Interface = record.Step.Name, record.Step.Instance,
		record.Step.Type, record.IfName
	if record.Step.Device != nil {
		report.Device = record.Step.Device.Name
	}
	line := func(command string) string { return n.line(attachment, record, command, printer.Milliseconds(took)) }
	switch {
	case previous.phase == executor.StepAdding && record.Phase == executor.StepAdded:
		report.Added, report.AddTime, report.Result = true, took.Milliseconds(), record.Result
		n.out.Good("%s", line("ADD"))
	case previous.phase == executor.StepAdding && record.Phase == executor.StepDeleting:
		report.AddTime = took.Milliseconds()
		n.out.Bad("%s", line("ADD"))
	case record.Failures > previous.failures:
		n.out.Bad("%s", line("DEL"))
	case previous.phase == executor.StepDeleting && record.Phase == executor.StepDeleted:
		report.Deleted, report.DelTime = true, took.Milliseconds()
		n.out.Good("%s", line("DEL"))
	}
}

// announce shows the next step on a terminal. It searches from the last step, because steps are undone in reverse
// order.
func (n *narrator) announce(attachment *executor.Attachment) {
	for i := len(attachment.Steps) - 1; i >= 0; i-- {
		record := &attachment.Steps[i]
		switch record.Phase {
		case executor.StepAdding:
			n.out.Pending(n.line(attachment, record, "ADD", ""))
			return
		case executor.StepDeleting:
			n.out.Pending(n.line(attachment, record, "DEL", ""))
			return
		case executor.StepPlanned, executor.StepAdded, executor.StepDeleted:
		}
	}
}

func (n *narrator) line(attachment *executor.Attachment, record *executor.StepRecord, command, took string) string {
	width, nameWidth := 0, 0
	for i := range attachment.Steps {
		width = max(width, len(stepTitle(&attachment.Steps[i])))
		nameWidth = max(nameWidth, len(attachment.Steps[i].IfName))
	}
	return fmt.Sprintf("%s %-*s  %-*s  %7s", command, width, stepTitle(record), nameWidth, record.IfName, took)
}

func stepTitle(record *executor.StepRecord) string {
	return fmt.Sprintf("%s (%s)", printer.StepTitle(record.Step.Name, record.Step.Instance), record.Step.Type)
}
