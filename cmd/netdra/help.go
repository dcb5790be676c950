package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// exitCodesHelp is a topic of "netdra help". Each command's Long has its own part, so a change is to be made in both.
func exitCodesHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "Exit status of each command",
		Long: `The exit status means the same for every command:

  0  success, or the answer is yes
  1  something is wrong, failed or does not fit; what was begun is undone
  2  nothing was done, or it could not be determined: wrong usage, an invalid file, no answer, no such object
  3  something could not be undone, or is not as it was before

  command           1                                        2
  bundle                                                     nothing could be collected
  chain validate                                             a topology is not valid
  chain plan                                                 the topology cannot run with these devices
  chain run, undo   a step failed; everything is undone      nothing was run (3: something is left)
  claims            a claim could not be attached            the driver does not answer, or has no such claim
  classes                                                    the cluster cannot be read
  devices                                                    the driver does not answer, or offers no such device
  doctor            something is wrong with the node         the node cannot be read
  explain           the device is not offered                there is no such device
  facts, slices                                              the machine, or a file, cannot be read
  import            something has to be done by hand         the input cannot be read
  policies list                                              the driver does not answer, or knows no such policy
  policies test     a policy is not valid                    a file, the machine or the driver cannot be read
  release           something could not be undone or removed the driver does not answer
  report                                                     the driver does not answer, or a file cannot be read
  simulate          something does not fit                   it could not be determined
  trace             a call failed                            the log has nothing of the claim
  version                                                    the usage is wrong`,
	}
}

// kubectlName is the file name that kubectl looks for to run "kubectl netdra".
const kubectlName = "kubectl-netdra"

// displayName returns the name of the program for help texts, given the name that it was started with.
func displayName(name string) string {
	if strings.TrimSuffix(filepath.Base(name), ".exe") == kubectlName {
		return "kubectl netdra"
	}
	return "netdra"
}

// callAs puts the display name into usage lines and examples. Only examples at the beginning of a line are changed:
// elsewhere netdra is the name of the program.
func callAs(root *cobra.Command, name string) {
	if name == root.Name() {
		return
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	var rename func(*cobra.Command)
	rename = func(cmd *cobra.Command) {
		lines := strings.Split(cmd.Example, "\n")
		for i, line := range lines {
			lines[i] = strings.Replace(strings.Replace(line, "  netdra ", "  "+name+" ", 1), "  sudo netdra ",
				"  sudo "+name+" ", 1)
		}
		cmd.Example = strings.Join(lines, "\n")
		for _, sub := range cmd.Commands() {
			rename(sub)
		}
	}
	rename(root)
}
