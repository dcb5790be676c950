package main

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/policy/nearest"
)

// exitCodesHelp is a topic of "netdra help". Each command's Long repeats its own part; keep both in sync.
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
  release           something was not undone or removed      the driver does not answer
  report                                                     the driver does not answer, or a file cannot be read
  simulate          something does not fit                   it could not be determined
  trace             a call failed                            the log has nothing of the claim
  version                                                    the usage is wrong`,
	}
}

// kubectlName is the file name that "kubectl netdra" requires.
const kubectlName = "kubectl-netdra"

// displayName returns the program name for help texts, derived from the name of the executable.
func displayName(name string) string {
	if strings.TrimSuffix(filepath.Base(name), ".exe") == kubectlName {
		return "kubectl netdra"
	}
	return "netdra"
}

// callAs puts the display name into usage lines and examples. It only changes examples at the beginning of a line;
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

// These checks replace those of package cobra, which count arguments but do not name the missing ones.

// noArguments rejects arguments. advice is the command that the user probably meant, with {} for the argument. If
// empty, the error refers to the help.
func noArguments(advice string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, arguments []string) error {
		if len(arguments) == 0 {
			return nil
		}
		return exit.Refusef("cannot use argument %q: %s takes none; %s", arguments[0], cmd.CommandPath(),
			cmp.Or(strings.ReplaceAll(advice, "{}", arguments[0]), "see "+cmd.CommandPath()+" --help"))
	}
}

// oneArgument requires exactly one argument. example is an example of the argument.
func oneArgument(name, example string) cobra.PositionalArgs {
	return countArguments(1, 1, name, example)
}

// someArguments requires at least one argument.
func someArguments(name, example string) cobra.PositionalArgs {
	return countArguments(1, math.MaxInt, name, example)
}

// optionalArgument accepts at most one argument.
func optionalArgument(name, example string) cobra.PositionalArgs {
	return countArguments(0, 1, name, example)
}

func countArguments(least, most int, name, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, arguments []string) error {
		switch path := cmd.CommandPath(); {
		case len(arguments) < least:
			return exit.Refusef("cannot run %s: the argument %s is missing; write it like %s %s", path, name, path,
				example)
		case len(arguments) > most:
			return exit.Refusef("cannot use argument %q: %s takes one %s; write it like %s %s", arguments[most], path,
				name, path, example)
		}
		return nil
	}
}

// subcommandOnly is the RunE of commands that only group subcommands.
func subcommandOnly(cmd *cobra.Command, arguments []string) error {
	if len(arguments) == 0 {
		return nil
	}
	return unknownCommand(cmd, arguments[0])
}

// unknownCommand returns the error for an unknown subcommand.
func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, cmd := range parent.Commands() {
		if !cmd.Hidden {
			names = append(names, cmd.Name())
		}
	}
	advice := fmt.Sprintf("see %s --help", parent.CommandPath())
	if near := nearest.Word(name, names); near != "" {
		advice = "did you mean " + near + "?"
	}
	return exit.Refusef("unknown command %q for %q; %s", name, parent.CommandPath(), advice)
}

// helpCommand replaces the help command of package cobra, which exits with status 0 for an unknown command.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		Long:  "Use help to read what a command does, or one of the topics at the end of netdra --help.",
		RunE: func(_ *cobra.Command, arguments []string) error {
			found, rest, err := root.Find(arguments)
			switch {
			case err != nil:
				return unknownCommand(root, arguments[0])
			case len(rest) > 0 && found.HasSubCommands():
				return unknownCommand(found, rest[0])
			}
			found.InitDefaultHelpFlag()
			found.InitDefaultVersionFlag()
			return found.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, arguments []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if found, _, err := root.Find(arguments); err == nil {
				for _, cmd := range found.Commands() {
					if !cmd.Hidden {
						names = append(names, cmd.Name())
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
