package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// defaultLogDir is where the driver of a node logs CNI calls.
const defaultLogDir = "/var/log/dra-network"

func traceCommand(to console) *cobra.Command {
	var dir, form, socket string
	var calls bool
	cmd := &cobra.Command{
		Use:   "trace [[NAMESPACE/]CLAIM]",
		Short: "Show every CNI call that was made for a claim on this node, with times and results",
		Long: `trace reads the driver's log of CNI calls on this node: which step of the topology ran which plugin, when, how long that
took, and what came of it. Without a claim it lists those that the log has; it keeps them for an hour after their release.

Exit status: 0 every call succeeded, 1 one failed, 2 the log has nothing of the claim.`,
		Example: `  # which claims are there?
  sudo netdra trace

  # what has been done for one, and with what went in and came out
  sudo netdra trace default/my-pod-net-8x2kq
  sudo netdra trace my-pod-net-8x2kq --calls`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			if err := checkForm(form); err != nil {
				return err
			}
			if len(arguments) == 0 {
				return listLogged(to, form, dir)
			}
			return trace(to, form, dir, arguments[0], calls)
		},
	}
	cmd.Flags().StringVar(&dir, "log-dir", defaultLogDir, "where the driver logs CNI calls")
	cmd.Flags().StringVar(&socket, "socket", socketHere(), "where the driver of this node answers, for the completion of names")
	cmd.ValidArgsFunction = completeFrom(&socket, claimNames)
	cmd.Flags().BoolVar(&calls, "calls", false, "show what each plugin was given and what it returned, too")
	formFlag(cmd, &form)
	_ = cmd.MarkFlagDirname("log-dir") // the name of a flag that exists is no error
	return cmd
}

func listLogged(to console, form, dir string) error {
	claims, err := executor.LoggedClaims(dir)
	if err != nil {
		return err
	}
	if form != formText {
		return printResult(to.out, form, claims)
	}
	out := newPrinter(to.out)
	if len(claims) == 0 {
		out.say("the log in %s has no claim", dir)
	}
	for _, claim := range claims {
		out.say("%s", claim)
	}
	return nil
}

func trace(to console, form, dir, name string, whole bool) error {
	calls, err := readCalls(to, dir, name)
	if err != nil {
		return err
	}
	if form != formText {
		err = printResult(to.out, form, calls)
	} else {
		printTrace(newPrinter(to.out), calls, whole)
	}
	if err == nil && slices.ContainsFunc(calls, func(c executor.LoggedCall) bool { return c.Error != "" }) {
		err = &exitError{code: exitFailed, err: errShown}
	}
	return err
}

// readCalls are those that were made for a claim, by their times. What of them can't be read is told.
func readCalls(to console, dir, name string) ([]executor.LoggedCall, error) {
	namespace, short := splitClaim(name)
	calls, err := executor.ReadCalls(dir, namespace, short)
	if len(calls) == 0 {
		return nil, errors.Join(fmt.Errorf("the log in %s has no calls for claim %s/%s: is this the pod's node? \"netdra trace\" lists what it has", dir, namespace, short), err)
	}
	if err != nil {
		newPrinter(to.err).warn("%v", err)
	}
	return calls, nil
}

// printTrace writes a time line for every sandbox. Times are those of this machine's zone; AFTER is since the first call in the
// sandbox.
func printTrace(out *printer, calls []executor.LoggedCall, whole bool) {
	for i, sandbox := range sandboxesOf(calls) {
		if i > 0 {
			out.say("")
		}
		first := slices.IndexFunc(calls, func(c executor.LoggedCall) bool { return c.Sandbox == sandbox })
		out.say("claim %s, pod %s, sandbox %.12s", calls[first].Claim, calls[first].Pod, sandbox)
		rows := [][]string{{"TIME", "AFTER", "STEP", "COMMAND", "PLUGIN", "TOOK", "RESULT"}}
		for j := range calls {
			if call := &calls[j]; call.Sandbox == sandbox {
				rows = append(rows, []string{call.Time.Local().Format("15:04:05.000"), milliseconds(call.Time.Sub(calls[first].Time)), titleOf(call.Step, call.Instance),
					call.Command, filepath.Base(call.Plugin), milliseconds(time.Duration(call.Duration)), outcomeOf(call)})
			}
		}
		out.table(rows)
		for j := range calls {
			if call := &calls[j]; whole && call.Sandbox == sandbox {
				printCall(out, call)
			}
		}
	}
}

// sandboxesOf are in the order of their first calls.
func sandboxesOf(calls []executor.LoggedCall) []string {
	var sandboxes []string
	for i := range calls {
		if !slices.Contains(sandboxes, calls[i].Sandbox) {
			sandboxes = append(sandboxes, calls[i].Sandbox)
		}
	}
	return sandboxes
}

// outcomeOf is an error, or what ADD has made in the pod.
func outcomeOf(call *executor.LoggedCall) string {
	if call.Error != "" {
		return "failed: " + strings.ReplaceAll(call.Error, "\n", " ")
	}
	var result types100.Result
	if json.Unmarshal(call.Stdout, &result) != nil {
		return "ok"
	}
	parts := []string{"ok:"}
	for _, link := range result.Interfaces {
		if link.Sandbox != "" {
			parts = append(parts, link.Name)
		}
	}
	for _, ip := range result.IPs {
		parts = append(parts, ip.Address.String())
	}
	if len(parts) == 1 {
		return "ok"
	}
	return strings.Join(parts, " ")
}

func printCall(out *printer, call *executor.LoggedCall) {
	out.section(fmt.Sprintf("%s %s of step %s, %s", call.Command, call.Plugin, titleOf(call.Step, call.Instance), call.Time.Local().Format("15:04:05.000")))
	printStreams(out, call)
}

// printStreams writes what went in and came out.
func printStreams(out *printer, call *executor.LoggedCall) {
	for _, stream := range []struct {
		name string
		data string
	}{{"stdin", pretty(call.Stdin)}, {"stdout", pretty(call.Stdout)}, {"stderr", call.Stderr}, {"error", call.Error}} {
		if text := strings.TrimSpace(stream.data); text != "" && text != "null" {
			out.say("  %s\n%s", stream.name, indent(text, 4))
		}
	}
}
