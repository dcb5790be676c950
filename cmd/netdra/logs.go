package main

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

func logsCommand(to console) *cobra.Command {
	var dir, form, socket string
	var failed bool
	cmd := &cobra.Command{
		Use:   "logs [NAMESPACE/]CLAIM",
		Short: "Print every CNI call that was made for a claim on this node, in full",
		Long: `logs prints the driver's log of CNI calls for a claim, in the order in which they were made: the plugin, its variables, what it was
given, what it returned, and its error. Values of keys that look like secrets were left out when they were written, and long
streams cut. Times are those of this machine. "netdra trace" shows the same calls as a time line. A log is kept for an hour after the release of its claim.

Exit status: 0 every call succeeded, 1 one failed, 2 the log has nothing of the claim.`,
		Example: `  sudo netdra logs default/my-pod-net-8x2kq
  sudo netdra logs my-pod-net-8x2kq --failed
  sudo netdra logs my-pod-net-8x2kq -o json | jq '.[].stdin'`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			if err := checkForm(form); err != nil {
				return err
			}
			calls, err := readCalls(to, dir, arguments[0])
			if err != nil {
				return err
			}
			return printLogs(to, form, calls, failed)
		},
		ValidArgsFunction: completeFrom(&socket, claimNames),
	}
	cmd.Flags().StringVar(&dir, "log-dir", defaultLogDir, "where the driver logs CNI calls")
	cmd.Flags().BoolVar(&failed, "failed", false, "only calls that have failed")
	cmd.Flags().StringVar(&socket, "socket", socketHere(), "where the driver of this node answers, for the completion of names")
	formFlag(cmd, &form)
	_ = cmd.MarkFlagDirname("log-dir") // the name of a flag that exists is no error
	return cmd
}

func printLogs(to console, form string, calls []executor.LoggedCall, failedOnly bool) error {
	hasFailed := func(c executor.LoggedCall) bool { return c.Error != "" }
	anyFailed := slices.ContainsFunc(calls, hasFailed)
	if failedOnly {
		calls = slices.DeleteFunc(calls, func(c executor.LoggedCall) bool { return !hasFailed(c) })
	}
	if form != formText {
		if err := printResult(to.out, form, calls); err != nil {
			return err
		}
	} else {
		out := newPrinter(to.out)
		for i := range calls {
			if i > 0 {
				out.say("")
			}
			printWholeCall(out, &calls[i])
		}
	}
	if anyFailed {
		return &exitError{code: exitFailed, err: errShown}
	}
	return nil
}

// printWholeCall writes everything that is known of a call.
func printWholeCall(out *printer, call *executor.LoggedCall) {
	line := out.good
	if call.Error != "" {
		line = out.bad
	}
	line("%s  %s %s, step %s: exit status %d after %s", call.Time.Local().Format("2006-01-02 15:04:05.000"), call.Command, filepath.Base(call.Plugin),
		titleOf(call.Step, call.Instance), call.ExitCode, milliseconds(time.Duration(call.Duration)))
	for _, field := range []struct{ name, text string }{{"claim", call.Claim}, {"pod", call.Pod}, {"sandbox", call.Sandbox}, {"plugin", call.Plugin}} {
		out.say("    %s %s", out.colour(dim, (field.name + "       ")[:7]), field.text)
	}
	for _, variable := range call.Env {
		if strings.HasPrefix(variable, "CNI_") {
			out.say("    %s", variable)
		}
	}
	printStreams(out, call)
}
