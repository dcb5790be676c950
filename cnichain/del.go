package cnichain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/version"
)

// Del undoes an attachment, or only the steps of some of its claims: DEL of every step that may have had an effect, in
// reverse order, each with the stdin of its ADD, and every exclusive device proven home. It may be called in any phase, any
// number of times, and goes on where it stopped. It tries everything and joins the errors. When nothing is left the
// namespace is unpinned and the record deleted; until then the record stays, and the caller tries again later.
func (e *Executor) Del(ctx context.Context, attachment *Attachment, claims ...string) error {
	var problems []error
	if markDeleting(attachment, claims) {
		// A journal that can't be written must not keep anything attached; the record stays until it can be.
		if err := e.Journal.Save(attachment); err != nil {
			problems = append(problems, err)
		}
	}
	inPod := e.Host.Exists(attachment.Pin)
	for i := len(attachment.Steps) - 1; i >= 0; i-- {
		record := &attachment.Steps[i]
		if record.Phase != StepDeleting {
			continue
		}
		if err := e.delStep(ctx, attachment, record, inPod); err != nil {
			problems = append(problems, stepError(record, "DEL", err))
			continue
		}
		record.Phase = StepDeleted
		if err := e.Journal.Save(attachment); err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	return e.finish(attachment)
}

// markDeleting says which steps are to be undone; no claims mean all. It reports whether that is news for the journal.
func markDeleting(attachment *Attachment, claims []string) (changed bool) {
	if len(claims) == 0 && attachment.Phase != PhaseDetaching {
		attachment.Phase, changed = PhaseDetaching, true
	}
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		if len(claims) > 0 && !slices.Contains(claims, record.Claim.UID) {
			continue
		}
		switch record.Phase {
		case StepPlanned:
			record.Phase = StepDeleted // nothing was done
		case StepAdding, StepAdded:
			record.Phase, changed = StepDeleting, true
		case StepDeleting, StepDeleted:
		}
	}
	return changed
}

// finish forgets an attachment of which nothing is left.
func (e *Executor) finish(attachment *Attachment) error {
	for i := range attachment.Steps {
		if attachment.Steps[i].Phase != StepDeleted {
			return nil
		}
	}
	if err := e.Host.Unpin(attachment.Pin); err != nil {
		return err
	}
	return e.Journal.Delete(attachment.SandboxID)
}

func (e *Executor) delStep(ctx context.Context, attachment *Attachment, record *StepRecord, inPod bool) error {
	plan := callPlan{command: "DEL", path: record.Step.Path, netns: attachment.Pin, stdin: delStdin(record)}
	err := e.delInPod(ctx, attachment, record, plan, inPod)
	if err != nil {
		return err
	}
	return e.bringHome(attachment, record, inPod)
}

func (e *Executor) delInPod(ctx context.Context, attachment *Attachment, record *StepRecord, plan callPlan, inPod bool) error {
	if !inPod {
		return e.delWithoutNetns(ctx, attachment, record, plan)
	}
	if err := e.nameBack(attachment, record); err != nil {
		return err
	}
	_, err := e.call(ctx, attachment, record, plan)
	if err == nil {
		return nil
	}
	// A plugin may fail because the interface is gone already. Then only its addresses may be left.
	links, linksErr := e.Host.Links(attachment.Pin)
	if linksErr != nil || findLink(links, record.IfName) != nil {
		return err
	}
	return e.releaseAddresses(ctx, attachment, record, plan)
}

// nameBack finds an interface that the application has renamed: plugins look for it by name.
func (e *Executor) nameBack(attachment *Attachment, record *StepRecord) error {
	if record.Link == nil {
		return nil
	}
	links, err := e.Host.Links(attachment.Pin)
	if err != nil || findLink(links, record.IfName) != nil {
		return err
	}
	for i := range links {
		if links[i].Index == record.Link.Index {
			return e.Host.Rename(attachment.Pin, links[i].Index, record.IfName)
		}
	}
	return nil
}

// delWithoutNetns undoes a step whose pod's namespace is gone, and with it every virtual interface.
func (e *Executor) delWithoutNetns(ctx context.Context, attachment *Attachment, record *StepRecord, plan callPlan) error {
	switch record.Step.Quirks.DelWithoutNetns {
	case delNetnsSkip:
		return e.releaseAddresses(ctx, attachment, record, plan)
	case delNetnsStalePath:
	default:
		plan.netns = ""
	}
	_, err := e.call(ctx, attachment, record, plan)
	if err == nil && !record.Step.Quirks.LeaksIPAM {
		return nil
	}
	if released := e.releaseAddresses(ctx, attachment, record, plan); released != nil {
		return errors.Join(err, released)
	}
	return nil
}

// releaseAddresses calls the step's IPAM plugin itself, as the step's plugin would have (CNI specification, section 4
// "Delegated plugin execution procedure").
func (e *Executor) releaseAddresses(ctx context.Context, attachment *Attachment, record *StepRecord, plan callPlan) error {
	ipam := ipamType(record.Stdin)
	if ipam == "" {
		return nil
	}
	path, err := e.Exec.FindInPath(ipam, e.Dirs)
	if err != nil {
		return err
	}
	plan.path = path
	_, err = e.call(ctx, attachment, record, plan)
	return err
}

// delStdin is the stdin of the step's ADD with its own result as prevResult (CNI specification, section 3 "Deletions").
func delStdin(record *StepRecord) json.RawMessage {
	knowsPrevResult, err := version.GreaterThanOrEqualTo(record.Step.CNIVersion, "0.4.0")
	if record.Result == nil || err != nil || !knowsPrevResult {
		return record.Stdin
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(record.Stdin, &fields) != nil {
		return record.Stdin
	}
	fields["prevResult"] = record.Result
	out, err := json.Marshal(fields)
	if err != nil {
		return record.Stdin
	}
	return out
}

// bringHome proves that an exclusive device is on the host as it was.
func (e *Executor) bringHome(attachment *Attachment, record *StepRecord, inPod bool) error {
	device := record.Step.Device
	if device == nil || !device.Exclusive {
		return nil
	}
	err := e.Host.Restore(*device)
	if errors.Is(err, os.ErrNotExist) && e.destroyed(attachment, record, inPod) {
		return nil
	}
	return err
}

// destroyed says whether a virtual device that is not on the host does not exist any more: the namespace that it was in is
// gone, or does not have it, for example because the other end of a veth was deleted. Hardware always comes back.
func (e *Executor) destroyed(attachment *Attachment, record *StepRecord, inPod bool) bool {
	if record.Step.Device.PCIAddress != "" {
		return false
	}
	if !inPod {
		return true
	}
	links, err := e.Host.Links(attachment.Pin)
	if err != nil {
		return false
	}
	for i := range links {
		moved := record.Link != nil && links[i].Index == record.Link.Index // a move keeps the index
		if moved || links[i].MAC != "" && links[i].MAC == record.Step.Device.MAC {
			return false
		}
	}
	return true
}

// callPlan is one CNI call to be made.
type callPlan struct {
	command string
	path    string
	netns   string
	stdin   json.RawMessage
}

// call makes one CNI call within the step's time limit, and records it.
func (e *Executor) call(ctx context.Context, attachment *Attachment, record *StepRecord, plan callPlan) (CallOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, e.StepTimeout)
	defer cancel()
	environ := e.environ(attachment, record, plan)
	start := e.Clock.Now()
	output, err := e.Exec.Call(ctx, plan.path, plan.stdin, environ)
	e.Log.Record(Call{
		Time: start, Duration: e.Clock.Since(start), Claim: record.Claim, SandboxID: attachment.SandboxID, Pod: attachment.Pod.String(),
		Step: record.Step.Name, Instance: record.Step.Instance, Command: plan.command, Plugin: plan.path, CNIVersion: record.Step.CNIVersion,
		Env: environ, Stdin: plan.stdin, Output: output, Err: err,
	})
	if err == nil && output.Truncated {
		err = fmt.Errorf("%s printed more than %d bytes", record.Step.Type, maxOutput)
	}
	return output, err
}

// environ is all that a plugin sees of the environment (CNI specification, section 2 "Parameters"): the driver's own
// variables are not for plugins.
func (e *Executor) environ(attachment *Attachment, record *StepRecord, plan callPlan) []string {
	args := []string{
		"IgnoreUnknown=true",
		"K8S_POD_NAMESPACE=" + attachment.Pod.Namespace,
		"K8S_POD_NAME=" + attachment.Pod.Name,
		"K8S_POD_INFRA_CONTAINER_ID=" + attachment.SandboxID,
		"K8S_POD_UID=" + attachment.Pod.UID,
	}
	return []string{
		"CNI_COMMAND=" + plan.command,
		"CNI_CONTAINERID=" + attachment.SandboxID,
		"CNI_NETNS=" + plan.netns,
		"CNI_IFNAME=" + record.IfName,
		"CNI_ARGS=" + strings.Join(args, ";"),
		"CNI_PATH=" + strings.Join(e.Dirs, string(os.PathListSeparator)),
		"PATH=" + os.Getenv("PATH"),
	}
}
