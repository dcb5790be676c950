package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

// garbage is something on the node that nobody has any more.
type garbage struct {
	Kind  string `json:"kind"`
	Path  string `json:"path"`
	Claim string `json:"claim,omitempty"` // UID
	Error string `json:"error,omitempty"`
}

func gcCommand(to console) *cobra.Command {
	var socket, form string
	var all, dryRun bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Show what is left on this node that nobody has, and have the driver remove it",
		Long: `gc shows CDI specs of claims that are not prepared, network namespaces that are kept for sandboxes that are gone, and CNI logs that
are older than they should be. There is nothing of that, but after crashes, or when somebody has restored files. With --all the
driver of this node removes it: it looks at each thing once more, under the lock of whoever could need it at this moment, so that
a claim that is being prepared and a pod that is being started lose nothing.

What could not be undone is not touched: "netdra release" is for that. CNI plugins are not asked to collect garbage (the verb GC):
they would take the addresses of every pod that the driver does not know, as after a lost journal.

Exit status: 0 nothing is left, or it was shown, 1 something could not be removed, 2 the driver does not answer.`,
		Example: `  sudo netdra gc
  sudo netdra gc --all
  sudo netdra gc -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkListForm(form); err != nil {
				return err
			}
			method := http.MethodGet
			if all && !dryRun {
				method = http.MethodPost
			}
			found, err := askGarbage(cmd.Context(), socket, method)
			if err != nil {
				return err
			}
			return printGarbage(to, form, found, method == http.MethodPost)
		},
	}
	socketFlag(cmd, &socket)
	cmd.Flags().BoolVar(&all, "all", false, "remove it")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show it, as without --all")
	cmd.MarkFlagsMutuallyExclusive("all", "dry-run")
	listFlag(cmd, &form)
	return cmd
}

func askGarbage(ctx context.Context, socket, method string) ([]garbage, error) {
	body, err := newDriverClient(socket).call(ctx, method, "/garbage")
	if err != nil {
		return nil, err
	}
	var found []garbage
	if err := json.Unmarshal(body, &found); err != nil {
		return nil, fmt.Errorf("cannot read what the driver says at %s: is it of another version? %w", socket, err)
	}
	return found, nil
}

func printGarbage(to console, form string, found []garbage, removed bool) error {
	err := printList(to.out, form, found, []column[garbage]{
		{title: "KIND", value: func(g *garbage) string { return g.Kind }},
		{title: "PATH", value: func(g *garbage) string { return g.Path }},
		{title: "CLAIM UID", wide: true, value: func(g *garbage) string { return g.Claim }},
	}, "nothing is left that nobody has")
	failed := 0
	out := newPrinter(to.err)
	for i := range found {
		if found[i].Error != "" {
			failed++
			out.bad("%s: %s", found[i].Path, found[i].Error)
		}
	}
	switch {
	case err != nil || len(found) == 0:
		return err
	case !removed:
		out.say("\"netdra gc --all\" removes it")
	case failed > 0:
		return &exitError{code: exitFailed, err: errShown}
	default:
		out.good("removed")
	}
	return nil
}
