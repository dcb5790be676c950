package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// completeFrom offers names that the driver knows. Without the driver, or without the right to ask it, nothing is
// offered. It must not print: the shell would take that for names.
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

// completionLimit is how long a shell waits for names.
const completionLimit = time.Second
