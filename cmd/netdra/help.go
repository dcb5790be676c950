package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// exitCodesHelp is a topic of "netdra help".
func exitCodesHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit status of each command says",
		Long: `All commands say the same with their exit status:

  0  all is well, or what was asked about is so
  1  it is not: something is wrong, failed or does not fit, and what was begun is undone
  2  nothing was done, or it can't be said: wrong usage, a file that is not valid, nobody who answers, no such thing
  3  something could not be undone, or is not as it was before

  command           1                                        2
  chain validate                                             a topology is not valid
  chain plan                                                 the topology can't be run with these devices
  chain run, undo   a step failed; everything is undone      nothing was run (and 3: something is left)
  claims            a claim could not be attached            the driver does not answer, or has no such claim
  devices                                                    the driver does not answer, or offers no such device
  doctor            something is wrong with the node         the node can't be looked at
  explain           the device is not offered                there is no such device
  facts, slices                                              the machine, or a file, can't be read
  gc                something could not be removed           the driver does not answer
  logs, trace       a call has failed                        the log has nothing of the claim
  policies test     a policy is not valid                    a file, the machine or the driver can't be read
  release           something could not be undone again      the driver does not answer
  report                                                     the page can't be made: the driver does not answer, or a file can't be read
  simulate          something does not fit                   it can't be said
  version                                                    the usage is wrong`,
	}
}

// kubectlName is the name of the program by which kubectl finds it, as "kubectl netdra".
const kubectlName = "kubectl-netdra"

// displayName is how the program is called by who runs it as name.
func displayName(name string) string {
	if strings.TrimSuffix(filepath.Base(name), ".exe") == kubectlName {
		return "kubectl netdra"
	}
	return "netdra"
}

// callAs makes usage lines and examples say how the program is called.
func callAs(root *cobra.Command, name string) {
	if name == root.Name() {
		return
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	var rename func(*cobra.Command)
	rename = func(cmd *cobra.Command) {
		lines := strings.Split(cmd.Example, "\n")
		for i, line := range lines {
			lines[i] = strings.Replace(strings.Replace(line, "  netdra ", "  "+name+" ", 1), "  sudo netdra ", "  sudo "+name+" ", 1)
		}
		cmd.Example = strings.Join(lines, "\n")
		for _, sub := range cmd.Commands() {
			rename(sub)
		}
	}
	rename(root)
}
