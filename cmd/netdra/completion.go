package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// completeFrom returns a completion function for names that the driver reports. It returns no names if the driver
// cannot be queried. It must not print errors, since the shell would interpret the output as names.
func completeFrom(socket *string, names func(*nodestate.Answers) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
		defer cancel()
		all, err := nodeclient.ReadHolders(ctx, *socket)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(all), cobra.ShellCompDirectiveNoFileComp
	}
}

// completionLimit is the time limit for a completion.
const completionLimit = time.Second
