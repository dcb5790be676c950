package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/dra-networking/dra-network-driver/cnichain"
)

// Commands from the CNI specification.
const (
	commandAdd    = "ADD"
	commandDel    = "DEL"
	commandCheck  = "CHECK"
	commandStatus = "STATUS"
)

// Check verifies that a ready attachment is unchanged: every interface must still be in the pod under its name, and
// every plugin that supports CHECK (CNI 0.4.0) must confirm this, unless its CHECK is known to be unreliable
// (quirks.checkUnsafe). Check skips plugins whose interface is changed by a later step, since such plugins compare the
// interface with their own result: for example, sbr moves routes, and tuning may set the address. Check is read-only;
// it checks all steps and joins the errors. It helps users diagnose faults. Since an application may change its
// interfaces, a failed check does not justify a rollback.
func (e *Executor) Check(ctx context.Context, attachment *Attachment) error {
	var problems []error
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		if record.Phase != StepAdded {
			continue
		}
		if err := e.checkStep(ctx, attachment, i); err != nil {
			problems = append(problems, stepError(record, commandCheck, err))
		}
	}
	return errors.Join(problems...)
}

func (e *Executor) checkStep(ctx context.Context, attachment *Attachment, i int) error {
	record := &attachment.Steps[i]
	if record.Step.WithoutInterface() { // the application's use of the device cannot be observed
		return e.checkRDMA(attachment, record)
	}
	state, link, err := e.locate(attachment, record)
	if err != nil {
		return err
	}
	switch state {
	case netnsGone:
		return fmt.Errorf("the network namespace of pod %s is gone", attachment.Pod)
	case linkRenamed:
		return fmt.Errorf("interface %q is called %q now", record.IfName, link.Name)
	case linkNameSwapped, linkForeign:
		return fmt.Errorf("another interface is called %q now", record.IfName)
	case linkAbsent:
		return fmt.Errorf("interface %q is gone", record.IfName)
	case linkNamed:
	}
	if err := e.checkRDMA(attachment, record); err != nil {
		return err
	}
	reworked := slices.ContainsFunc(attachment.Steps[i+1:], func(later StepRecord) bool {
		return !later.Step.Makes && later.IfName == record.IfName
	})
	if reworked || record.Step.Quirks.CheckUnsafe || !record.Step.Speaks("0.4.0") {
		return nil
	}
	_, err = e.call(ctx, attachment, record, callPlan{command: commandCheck, netns: attachment.Pin})
	return err
}

// checkRDMA checks that the pod still has the step's RDMA devices.
func (e *Executor) checkRDMA(attachment *Attachment, record *StepRecord) error {
	_, missing, err := e.RDMANow(attachment.Pin, record)
	if err == nil && missing != "" {
		err = fmt.Errorf("RDMA device %s is gone", missing)
	}
	return err
}

// STATUS codes (CNI specification, section 2 "STATUS").
const (
	codeNotAvailable        = 50
	codeLimitedConnectivity = 51
)

// Status calls STATUS (CNI 1.1.0) on those plugins in a plan that support it, to check whether they are ready to serve
// ADD. Only codes 50 and 51 are treated as errors, since many plugins do not fully implement the CNI version that they
// report. Steps whose configuration depends on the pod are skipped. Status starts a process for each step. It is not
// called at pod startup, where ADD would fail with the same message anyway.
func (e *Executor) Status(ctx context.Context, plan *cnichain.Plan) error {
	var problems []error
	attachment := NewAttachment("", Pod{}, []cnichain.Plan{*plan})
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		if !record.Step.Speaks("1.1.0") || strings.Contains(string(record.Step.Config), "{{") {
			continue
		}
		record.Step.PrevResult = false
		input, err := stdin(attachment, record, record.Step.Config)
		if err == nil {
			_, err = e.call(ctx, attachment, record, callPlan{command: commandStatus, stdin: input})
		}
		var answer *types.Error
		if errors.As(err, &answer) && (answer.Code == codeNotAvailable || answer.Code == codeLimitedConnectivity) {
			problems = append(problems, stepError(record, commandStatus, err))
		}
	}
	return errors.Join(problems...)
}
