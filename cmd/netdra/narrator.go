package main

import (
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// narrator is a journal that tells people what is written to it: the journal knows when a step begins and how it ended,
// including what the engine itself has verified. It is used by one goroutine.
type narrator struct {
	executor.Journal
	out   *printer
	clock clock.PassiveClock

	began time.Time
	known []moment
	steps []stepReport
}

// moment is what was last told of a step.
type moment struct {
	phase    executor.StepPhase
	failures int
}

// stepReport is what came of a step.
type stepReport struct {
	Step      string `json:"step"`
	Instance  int    `json:"instance"`
	Type      string `json:"type"`
	Interface string `json:"interface,omitempty"`
	Device    string `json:"device,omitempty"`
	// Added and Deleted are true for success; AddTime and DelTime are in milliseconds.
	Added   bool  `json:"added"`
	AddTime int64 `json:"addMilliseconds,omitempty"`
	Deleted bool  `json:"deleted"`
	DelTime int64 `json:"delMilliseconds,omitempty"`
	// Result is what the plugin answered to ADD.
	Result any `json:"result,omitempty"`
}

// begin takes an attachment as it is; what changes from now on is told.
func (n *narrator) begin(attachment *executor.Attachment) {
	n.known = make([]moment, len(attachment.Steps))
	if len(n.steps) != len(attachment.Steps) {
		n.steps = make([]stepReport, len(attachment.Steps))
	}
	for i := range attachment.Steps {
		n.known[i] = momentOf(&attachment.Steps[i])
		if n.known[i].phase == executor.StepAdding {
			n.known[i].phase = executor.StepDeleting // an earlier process called ADD
		}
	}
	n.began = n.clock.Now()
	n.announce(attachment)
}

func momentOf(record *executor.StepRecord) moment {
	return moment{phase: record.Phase, failures: record.Failures}
}

// Save implements cnichain.Journal.
func (n *narrator) Save(attachment *executor.Attachment) error {
	took := n.clock.Since(n.began)
	n.out.endPending()
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		was := n.known[i]
		n.known[i] = momentOf(record)
		if was != n.known[i] {
			n.tell(attachment, i, was, took)
		}
	}
	err := n.Journal.Save(attachment)
	n.began = n.clock.Now()
	if err == nil {
		n.announce(attachment)
	}
	return err
}

// tell says what has become of a step.
func (n *narrator) tell(attachment *executor.Attachment, i int, was moment, took time.Duration) {
	record, report := &attachment.Steps[i], &n.steps[i]
	report.Step, report.Instance, report.Type, report.Interface = record.Step.Name, record.Step.Instance, record.Step.Type, record.IfName
	if record.Step.Device != nil {
		report.Device = record.Step.Device.Name
	}
	line := func(command string) string { return n.line(attachment, record, command, milliseconds(took)) }
	switch {
	case was.phase == executor.StepAdding && record.Phase == executor.StepAdded:
		report.Added, report.AddTime, report.Result = true, took.Milliseconds(), record.Result
		n.out.good("%s", line("ADD"))
	case was.phase == executor.StepAdding && record.Phase == executor.StepDeleting:
		report.AddTime = took.Milliseconds()
		n.out.bad("%s", line("ADD"))
	case record.Failures > was.failures:
		n.out.bad("%s", line("DEL"))
	case was.phase == executor.StepDeleting && record.Phase == executor.StepDeleted:
		report.Deleted, report.DelTime = true, took.Milliseconds()
		n.out.good("%s", line("DEL"))
	}
}

// announce shows what is done next.
func (n *narrator) announce(attachment *executor.Attachment) {
	for i := len(attachment.Steps) - 1; i >= 0; i-- {
		record := &attachment.Steps[i]
		switch record.Phase {
		case executor.StepAdding:
			n.out.pending(n.line(attachment, record, "ADD", ""))
			return
		case executor.StepDeleting:
			n.out.pending(n.line(attachment, record, "DEL", ""))
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
	return fmt.Sprintf("%s (%s)", titleOf(record.Step.Name, record.Step.Instance), record.Step.Type)
}
