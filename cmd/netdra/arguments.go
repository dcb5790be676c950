package main

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cnichain"
)

// Checks of arguments. Those of package cobra count arguments and do not name what is wanted.

// noArguments refuses arguments. advice says how to do what was probably meant, with the argument for {}; empty: the
// help says it.
func noArguments(advice string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, arguments []string) error {
		if len(arguments) == 0 {
			return nil
		}
		return exit.Refusef("cannot use argument %q: %s takes none; %s", arguments[0], cmd.CommandPath(),
			cmp.Or(strings.ReplaceAll(advice, "{}", arguments[0]), "see "+cmd.CommandPath()+" --help"))
	}
}

// oneArgument wants exactly one. example is what follows the name of the command.
func oneArgument(name, example string) cobra.PositionalArgs {
	return countArguments(1, 1, name, example)
}

// someArguments wants one or more.
func someArguments(name, example string) cobra.PositionalArgs {
	return countArguments(1, math.MaxInt, name, example)
}

// optionalArgument wants one or none.
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

// subcommandOnly is for commands that only have others below them.
func subcommandOnly(cmd *cobra.Command, arguments []string) error {
	if len(arguments) == 0 {
		return nil
	}
	return unknownCommand(cmd, arguments[0])
}

// unknownCommand is the error for a name that is no command below another.
func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, cmd := range parent.Commands() {
		if !cmd.Hidden {
			names = append(names, cmd.Name())
		}
	}
	advice := fmt.Sprintf("see %s --help", parent.CommandPath())
	if near := cnichain.Nearest(name, names); near != "" {
		advice = "did you mean " + near + "?"
	}
	return exit.Refusef("unknown command %q for %q; %s", name, parent.CommandPath(), advice)
}

// helpCommand takes the place of that of package cobra, whose exit status is 0 for a command that does not
// exist.
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
