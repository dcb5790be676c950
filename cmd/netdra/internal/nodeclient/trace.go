package nodeclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// DefaultLogDir is the default directory of the driver's CNI call log.
const DefaultLogDir = nodeapi.DefaultLogDir

// TraceOptions are the flags of "netdra trace".
type TraceOptions struct {
	// Dir is the directory of the log, and Socket is the path of the driver's socket.
	Dir, Socket, Form string
	// Calls adds the environment, input and output of each call to the timeline.
	Calls bool
	// Failed omits successful calls.
	Failed bool
}

// Run prints the calls for a claim, or lists the claims in the log. It returns an error if any of the calls failed. It
// reads the log from files, so it works even if the driver is down or has been removed. It queries the driver only to
// find out why the log has no calls.
func (f *TraceOptions) Run(ctx context.Context, streams printer.Streams, claims []string) error {
	if len(claims) == 0 {
		return f.listClaims(streams)
	}
	calls, err := f.readCalls(ctx, streams, claims[0])
	if err != nil {
		return err
	}
	failed, all := hasFailed(calls), len(calls)
	if f.Failed {
		calls = slices.DeleteFunc(calls, succeeded)
	}
	err = printer.Show(streams.Out, f.Form, calls, func(out *printer.Printer) {
		if len(calls) == 0 {
			out.Printf("no failed calls; %s in total", printer.Plural(all, "call"))
		} else {
			printTrace(out, calls, f.Calls)
		}
	})
	return exit.Check(err, failed)
}

func succeeded(c calllog.Call) bool { return c.Error == "" }

func hasFailed(calls []calllog.Call) bool {
	return slices.ContainsFunc(calls, func(c calllog.Call) bool { return c.Error != "" })
}

// listClaims prints the claims in the log. With --failed, it prints only claims with failed calls.
func (f *TraceOptions) listClaims(streams printer.Streams) error {
	names, err := calllog.Claims(f.Dir)
	if err != nil {
		return err
	}
	var claims []loggedClaim
	for _, name := range names {
		namespace, short := splitClaim(name)
		calls, err := calllog.Read(f.Dir, namespace, short)
		if err != nil { // still show the readable calls
			printer.New(streams.Err).Warn("%v", err)
		}
		if !f.Failed || hasFailed(calls) {
			claims = append(claims, loggedClaim{name, calls})
		}
	}
	if f.Form != printer.FormText {
		names = []string{}
		for i := range claims {
			names = append(names, claims[i].name)
		}
		return printer.Encode(streams.Out, f.Form, names)
	}
	what := "claims"
	if f.Failed {
		what = "claims with a failed call"
	}
	return printer.List(streams.Out, printer.FormTable, claims, loggedColumns(),
		fmt.Sprintf("the log in %s has no %s", f.Dir, what))
}

// loggedClaim is a claim with its logged calls in chronological order.
type loggedClaim struct {
	name  string
	calls []calllog.Call
}

func (c *loggedClaim) lastCall() *calllog.Call {
	if len(c.calls) == 0 {
		return &calllog.Call{}
	}
	return &c.calls[len(c.calls)-1]
}

// loggedColumns returns the columns of the list of claims. Values in the first column can be passed to "netdra trace".
func loggedColumns() []printer.Column[loggedClaim] {
	return []printer.Column[loggedClaim]{
		{Title: "CLAIM", Value: func(c *loggedClaim) string { return c.name }},
		{Title: "POD", Value: func(c *loggedClaim) string { return c.lastCall().Pod }},
		{Title: "CALLS", Value: func(c *loggedClaim) string { return strconv.Itoa(len(c.calls)) }},
		{Title: "FAILED", Value: func(c *loggedClaim) string {
			return strconv.Itoa(len(slices.DeleteFunc(slices.Clone(c.calls), succeeded)))
		}},
		{Title: "LAST CALL", Value: func(c *loggedClaim) string { return printer.Time(c.lastCall().Time) }},
		{Title: "RESULT", Value: func(c *loggedClaim) string {
			call := c.lastCall()
			switch {
			case call.Command == "":
				return ""
			case call.Error != "":
				return fmt.Sprintf("%s of step %s failed", call.Command, printer.StepTitle(call.Step, call.Instance))
			}
			return fmt.Sprintf("%s of step %s succeeded", call.Command, printer.StepTitle(call.Step, call.Instance))
		}},
	}
}

// readCalls returns the calls for a claim in chronological order. Unreadable lines, which a crash may leave behind,
// only cause a warning.
func (f *TraceOptions) readCalls(ctx context.Context, streams printer.Streams, name string) (
	[]calllog.Call, error) {
	namespace, short := splitClaim(name)
	calls, err := calllog.Read(f.Dir, namespace, short)
	if len(calls) == 0 {
		if refused := f.refusal(ctx, namespace, short); refused != nil && err == nil {
			return nil, refused
		}
		return nil, errors.Join(fmt.Errorf("the log in %s has no calls for claim %s/%s; check that this is the "+
			"pod's node, and list the logged claims with \"netdra trace\"", f.Dir, namespace, short), err)
	}
	if err != nil {
		printer.New(streams.Err).Warn("%v", err)
	}
	return calls, nil
}

// refusal returns an error if the claim has no calls because it was refused; otherwise nil.
func (f *TraceOptions) refusal(ctx context.Context, namespace, name string) error {
	answers, err := Read(ctx, New(f.Socket).Get, nodeapi.PathState)
	if err != nil {
		return nil //nolint:nilerr // the log is also useful without the driver
	}
	for i := range answers.State.Refused {
		if r := &answers.State.Refused[i]; r.Claim.Namespace == namespace && r.Claim.Name == name {
			return fmt.Errorf("no plugin was called for claim %s, since the driver refused to prepare it: %s; "+
				"list the waiting pods with \"netdra claims %s\"", r.Claim, r.Message, r.Claim)
		}
	}
	return nil
}

// Timeline contains the calls for a claim in one sandbox.
type Timeline struct {
	Title string
	// Rows is a table including its heading. The column AFTER contains the time since the first call in the sandbox.
	Rows  [][]string
	calls []*calllog.Call
}

// Timelines returns a timeline for each sandbox, ordered by first call.
func Timelines(calls []calllog.Call) []*Timeline {
	var timelines []*Timeline
	bySandbox := map[string]*Timeline{}
	for i := range calls {
		call := &calls[i]
		t := bySandbox[call.Sandbox]
		if t == nil {
			t = &Timeline{Title: fmt.Sprintf("claim %s, pod %s, sandbox %.12s", call.Claim, call.Pod, call.Sandbox),
				Rows: [][]string{{"TIME (UTC)", "AFTER", "STEP", "COMMAND", "PLUGIN", "TOOK", "RESULT"}}}
			bySandbox[call.Sandbox], timelines = t, append(timelines, t)
		}
		t.calls = append(t.calls, call)
		t.Rows = append(t.Rows, []string{printer.Clock(call.Time), printer.Milliseconds(call.Time.Sub(t.calls[0].Time)),
			printer.StepTitle(call.Step, call.Instance), call.Command, filepath.Base(call.Plugin),
			printer.Milliseconds(time.Duration(call.Duration)), outcomeText(call)})
	}
	return timelines
}

// printTrace prints the timelines. If whole is true, it also prints the input and output of each call.
func printTrace(out *printer.Printer, calls []calllog.Call, whole bool) {
	for i, timeline := range Timelines(calls) {
		if i > 0 {
			out.Printf("")
		}
		out.Printf("%s", timeline.Title)
		out.Table(timeline.Rows)
		for _, call := range timeline.calls {
			if whole {
				printCall(out, call)
			}
		}
	}
}

// outcomeText returns the result of a call as a single line for the timeline.
func outcomeText(call *calllog.Call) string {
	text := resultText(call)
	switch {
	case call.Error != "":
		return "failed: " + strings.ReplaceAll(text, "\n", " ")
	case text == "ok":
		return text
	}
	return "ok: " + text
}

// resultText returns the error from a call or, for ADD, the interfaces and addresses created in the pod. It also
// supports results in CNI versions before 1.0, in which interfaces and addresses have the same format.
func resultText(call *calllog.Call) string {
	if call.Error != "" {
		return call.Error
	}
	var result types100.Result
	if json.Unmarshal(call.Stdout, &result) != nil {
		return "ok"
	}
	var parts []string
	for _, link := range result.Interfaces {
		if link.Sandbox != "" { // other links are on the host
			parts = append(parts, link.Name)
		}
	}
	for _, ip := range result.IPs {
		parts = append(parts, ip.Address.String())
	}
	return cmp.Or(strings.Join(parts, " "), "ok")
}

func printCall(out *printer.Printer, call *calllog.Call) {
	out.Section(fmt.Sprintf("%s %s of step %s, %sZ", call.Command, call.Plugin,
		printer.StepTitle(call.Step, call.Instance), printer.Clock(call.Time)))
	for _, variable := range call.Env {
		if strings.HasPrefix(variable, "CNI_") {
			out.Printf("  %s", variable)
		}
	}
	for _, stream := range []struct{ name, data string }{{"stdin", printer.PrettyJSON(call.Stdin)},
		{"stdout", printer.PrettyJSON(call.Stdout)}, {"stderr", call.Stderr}, {"error", call.Error}} {
		if text := strings.TrimSpace(stream.data); text != "" && text != "null" {
			out.Printf("  %s\n%s", stream.name, printer.Indent(text, 4))
		}
	}
}
