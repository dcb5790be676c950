package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/inventory"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// completeFrom offers names that the driver knows. Without the driver, or without the right to ask it, nothing is offered.
func completeFrom(socket *string, names func(*nodestate.Answers) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
		defer cancel()
		all, err := askAll(ctx, *socket)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(all), cobra.ShellCompDirectiveNoFileComp
	}
}

// deviceNames are those of devices that are published.
func deviceNames(all *nodestate.Answers) []string {
	var names []string
	for _, device := range inventory.Devices(all) {
		names = append(names, device.Name)
	}
	return names
}

// claimNames are those of claims that are prepared.
func claimNames(all *nodestate.Answers) []string {
	var names []string
	for _, claim := range inventory.Claims(all) {
		names = append(names, claim.Namespace+"/"+claim.Name)
	}
	return names
}

// leftoverKeys are those of what could not be undone.
func leftoverKeys(all *nodestate.Answers) []string {
	var keys []string
	for i := range all.Leftovers {
		keys = append(keys, all.Leftovers[i].Key)
	}
	return keys
}
