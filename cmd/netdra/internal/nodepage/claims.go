package nodepage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"path/filepath"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/picture"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

const (
	// mostCalls is the number of calls shown per claim and sandbox, newest first.
	mostCalls = 12
	// mostOutput is the number of bytes shown from a call's output.
	mostOutput = 1024
)

// claimsOf returns all claims, those with problems first. IDs are assigned after sorting, so that links within the page
// stay the same for the same node.
func claimsOf(node *Node) []ClaimView {
	views := make([]ClaimView, 0, len(node.Claims))
	for i := range node.Claims {
		views = append(views, claimOf(node, &node.Claims[i]))
	}
	slices.SortStableFunc(views, func(a, b ClaimView) int {
		if a.Bad != b.Bad {
			return map[bool]int{true: -1, false: 1}[a.Bad]
		}
		return cmp.Compare(a.Name, b.Name)
	})
	const fewToShowAll = 2
	for i := range views {
		views[i].ID = fmt.Sprintf("c%d", i)
		views[i].Open = views[i].Bad || len(views) <= fewToShowAll
		for j := range views[i].Runs {
			run := &views[i].Runs[j]
			run.Graph = graphOf(fmt.Sprintf("%sr%d", views[i].ID, j), views[i].Name, run)
		}
	}
	return views
}

func claimOf(node *Node, claim *nodestate.Claim) ClaimView {
	view := ClaimView{Name: claim.Claim.String(), State: "prepared"}
	lost := false
	for _, held := range claim.Devices {
		device := ClaimDevice{Request: held.Request, Name: held.Name, Pool: held.Pool}
		var amounts []string
		for _, name := range sortedNames(held.Consumed) {
			amount := held.Consumed[resourceapi.QualifiedName(name)]
			amounts = append(amounts, amount.String()+" "+unqualified(name))
		}
		device.Consumed = strings.Join(amounts, ", ")
		view.Devices = append(view.Devices, device)
	}
	for i := range node.Sandboxes {
		if box := &node.Sandboxes[i]; slices.Contains(box.Claims, claim.Claim.UID) {
			view.Runs = append(view.Runs, runOf(claim, box, node.Calls[claim.Claim.String()]))
			view.State = box.State
			view.Bad = view.Bad || box.Failure != "" || box.DetachFailure != ""
			lost = lost || len(lostBy(box, claim.Claim.UID)) > 0
		}
	}
	switch {
	case view.Bad:
		view.State = "failed"
	case lost:
		view.State, view.Bad = stateLost, true
	case len(view.Runs) == 0:
		view.State = "prepared, no pod yet"
		view.Runs = []Run{runOf(claim, &nodestate.Sandbox{}, nil)}
	case len(view.Runs) > 1:
		view.State = fmt.Sprintf("%d pods", len(view.Runs))
	}
	return view
}

// stateLost marks a claim that was attached and has lost an interface.
const stateLost = "interface lost"

// runOf returns the claim's chain in one sandbox, or the planned chain if there is no sandbox. The steps of several
// topologies are concatenated, so the indexes in After are shifted.
func runOf(claim *nodestate.Claim, box *nodestate.Sandbox, logged []calllog.Call) Run {
	run := Run{State: box.State, Failure: box.Failure, Sandbox: box.ID}
	if box.DetachFailure != "" {
		run.Failure = box.Failures()
	}
	if box.ID != "" {
		run.Pod = box.Pod.String()
	}
	lost := lostBy(box, claim.Claim.UID)
	if len(lost) > 0 && run.Failure == "" {
		run.Failure = box.MissingText(lost[0].Missing)
	}
	if len(lost) > 0 && run.State == nodestate.SandboxReady {
		run.State = stateLost
	}
	calls := slices.DeleteFunc(slices.Clone(logged), func(c calllog.Call) bool { return c.Sandbox != box.ID })
	var took time.Duration
	for i := range claim.Plans {
		plan := &claim.Plans[i]
		base := len(run.Steps)
		for j := range plan.Steps {
			step, spent := stepOf(&plan.Steps[j], calls)
			if isLost(&plan.Steps[j], lost) && step.State == stepDone {
				step.State = stepLost
			}
			for _, parent := range plan.Steps[j].DependsOn {
				step.After = append(step.After, base+parent)
			}
			run.Steps = append(run.Steps, step)
			took += spent
		}
	}
	if took > 0 {
		run.Took = duration(took)
	}
	run.Earlier = max(0, len(calls)-mostCalls)
	for i := run.Earlier; i < len(calls); i++ {
		run.Calls = append(run.Calls, callOf(&calls[i]))
	}
	return run
}

// lostBy returns the attached interfaces of a claim that are missing from the pod.
func lostBy(box *nodestate.Sandbox, claimUID string) []nodestate.Interface {
	var lost []nodestate.Interface
	for _, link := range box.Interfaces {
		if link.ClaimUID == claimUID && link.Missing != "" {
			lost = append(lost, link)
		}
	}
	return lost
}

// isLost reports whether a step attached a device that has lost an interface.
func isLost(step *cnichain.PlanStep, lost []nodestate.Interface) bool {
	return step.Device != nil && slices.ContainsFunc(lost, func(link nodestate.Interface) bool {
		return link.Pool == step.Device.Pool && link.Device == step.Device.Name
	})
}

// Step states.
const (
	stepWaiting  = "not run"
	stepDone     = "done"
	stepFailed   = "failed"
	stepUndone   = "undone"
	stepLeftOver = "cannot be undone"
	stepLost     = "interface lost"
)

// stepOf returns a step and the duration of its last ADD.
//
// The log may contain several attempts. The last call determines the state, and the last ADD the duration. A DEL
// without an error after a failed ADD means that the step failed and was cleaned up.
func stepOf(planned *cnichain.PlanStep, calls []calllog.Call) (Step, time.Duration) {
	step := Step{Name: stepName(planned.Name, planned.Instance), Plugin: planned.Type, State: stepWaiting}
	if planned.Device != nil {
		step.Device = planned.Device.Name
	}
	var add, last *calllog.Call
	for i := range calls {
		if call := &calls[i]; call.Step == planned.Name && call.Instance == planned.Instance {
			last = call
			if call.Command == "ADD" {
				add = call
			}
		}
	}
	switch {
	case last == nil:
		return step, 0
	case last.Command == "DEL" && last.Error != "":
		step.State, step.Result = stepLeftOver, last.Error
	case last.Error != "" || add != nil && add.Error != "":
		step.State = stepFailed
	case last.Command == "DEL":
		step.State = stepUndone
	default:
		step.State = stepDone
	}
	if add == nil {
		return step, 0
	}
	step.Took, step.Result = duration(time.Duration(add.Duration)), cmp.Or(step.Result, nodeclient.ResultText(add))
	return step, time.Duration(add.Duration)
}

func stepName(name string, instance int) string {
	if instance == 0 {
		return name
	}
	return fmt.Sprintf("%s #%d", name, instance+1)
}

// callOf returns a row for the table of CNI calls. It puts the plugin's output on one line.
func callOf(logged *calllog.Call) Call {
	call := Call{
		Time: logged.Time.UTC().Format("15:04:05.000"), Command: logged.Command + " " +
			filepath.Base(logged.Plugin), Step: stepName(logged.Step, logged.Instance),
		Took: duration(time.Duration(logged.Duration)), Result: nodeclient.ResultText(logged),
		Failed: logged.Error != "",
	}
	var compact bytes.Buffer
	if json.Compact(&compact, logged.Stdout) != nil {
		compact.Write(logged.Stdout)
	}
	call.Output = shorten(strings.TrimSpace(compact.String() + "\n" + logged.Stderr))
	return call
}

func shorten(text string) string {
	if len(text) <= mostOutput {
		return text
	}
	return strings.ToValidUTF8(text[:mostOutput], "") + "… (truncated; run netdra trace --calls)"
}

// duration formats a duration with a precision that is useful for comparison.
func duration(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// graphOf draws the chain. The table of steps contains the same information.
func graphOf(id, claim string, run *Run) template.HTML {
	graph := picture.Graph{Title: "Chain of claim " + claim}
	if run.Pod != "" {
		graph.Title += " for pod " + run.Pod
	}
	var descriptions []string
	for _, step := range run.Steps {
		state := stepMark(step.State) + " " + strings.TrimSpace(step.State+" "+step.Took)
		graph.Boxes = append(graph.Boxes, picture.Box{Lines: []string{step.Name, step.Plugin, state},
			Class: stepClass(step.State), After: step.After})
		descriptions = append(descriptions, fmt.Sprintf("%s (%s): %s", step.Name, step.Plugin, step.State))
	}
	return template.HTML(graph.Inline(id,
		strings.Join(descriptions, "; "))) //nolint:gosec // package picture escapes every text
}

func stepMark(state string) string {
	return map[string]string{stepDone: "✓", stepFailed: "✗", stepUndone: "↺", stepLeftOver: "!", stepLost: "✗",
		stepWaiting: "…"}[state]
}

func stepClass(state string) string {
	return map[string]string{stepDone: "done", stepFailed: "bad", stepUndone: "undone", stepLeftOver: "bad",
		stepLost: "bad", stepWaiting: "idle"}[state]
}
