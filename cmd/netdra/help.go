package main

import (
	"cmp"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
)

func exitCodesHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "Meaning of the exit status",
		Long: `Every command uses the same exit statuses:

  0  success, or the check passed
  1  a fault was found, a step failed or a claim does not fit; completed steps were undone
  2  nothing was done, or the result is unknown: wrong usage, an invalid file, no answer, no such object
  3  something could not be undone, or differs from the state before the run

The help of each command describes its statuses.`,
	}
}

// kubectlName is the file name that an executable must have to run as "kubectl netdra".
const kubectlName = "kubectl-netdra"

// displayName returns the program name for help texts, which depends on the name of the executable.
func displayName(name string) string {
	if strings.TrimSuffix(filepath.Base(name), ".exe") == kubectlName {
		return "kubectl netdra"
	}
	return "netdra"
}

// The following functions replace the argument checks in package cobra, which count arguments but do not name the
// missing one.

// noArguments rejects all arguments. advice is the command that the user probably meant, with {} instead of
// the argument. If advice is empty, the error refers to the help.
func noArguments(advice string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, arguments []string) error {
		if len(arguments) == 0 {
			return nil
		}
		return exit.Refusef("cannot use argument %q: %s takes no arguments; %s", arguments[0], cmd.CommandPath(),
			cmp.Or(strings.ReplaceAll(advice, "{}", arguments[0]), "see "+cmd.CommandPath()+" --help"))
	}
}

// countArguments requires at least least and at most most arguments. name is the name of the argument in the error, and
// example is a sample value.
func countArguments(least, most int, name, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, arguments []string) error {
		switch path := cmd.CommandPath(); {
		case len(arguments) < least:
			return exit.Refusef("cannot run %s: the argument %s is missing; example: %s %s", path, name, path,
				example)
		case len(arguments) > most:
			return exit.Refusef("cannot use argument %q: %s takes one %s; example: %s %s", arguments[most], path,
				name, path, example)
		}
		return nil
	}
}

func subcommandOnly(cmd *cobra.Command, arguments []string) error {
	if len(arguments) == 0 {
		return nil
	}
	return unknownCommand(cmd, arguments[0])
}

func unknownCommand(parent *cobra.Command, name string) error {
	return exit.Refusef("unknown command %q for %q; see %s --help", name, parent.CommandPath(), parent.CommandPath())
}

// helpCommand replaces package cobra's help command, which exits with status 0 for an unknown command.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		Long:  "Use help to read about a command, or about one of the topics that netdra --help lists.",
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
	}
}
