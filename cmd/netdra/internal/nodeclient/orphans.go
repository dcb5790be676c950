package nodeclient

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// Garbage is something on the node that nobody has any more.
type Garbage struct {
	Kind  string `json:"kind"`
	Path  string `json:"path"`
	Claim string `json:"claim,omitempty"` // UID
	Error string `json:"error,omitempty"`
}

// ReadOrphans lists orphaned files; with POST the driver removes them.
func ReadOrphans(ctx context.Context, socket, method string) ([]Garbage, error) {
	body, err := New(socket).send(ctx, method, "/garbage")
	if err != nil {
		return nil, err
	}
	var found []Garbage
	if err := json.Unmarshal(body, &found); err != nil {
		return nil, fmt.Errorf("cannot read what the driver says at %s: is it of another version? %w", socket, err)
	}
	return found, nil
}

// PrintOrphans lists orphaned files. The error is of files that could not be removed.
func PrintOrphans(streams printer.Streams, form string, found []Garbage, removed bool) error {
	err := printer.List(streams.Out, form, found, []printer.Column[Garbage]{
		{Title: "KIND", Value: func(g *Garbage) string { return g.Kind }},
		{Title: "PATH", Value: func(g *Garbage) string { return g.Path }},
		{Title: "CLAIM UID", Wide: true, Value: func(g *Garbage) string { return g.Claim }},
	}, "nothing is left that nobody has")
	failed := 0
	out := printer.New(streams.Err)
	for i := range found {
		if found[i].Error != "" {
			failed++
			out.Bad("%s: %s", found[i].Path, found[i].Error)
		}
	}
	switch {
	case err != nil || len(found) == 0:
		return err
	case !removed:
		out.Printf("\"netdra gc --all\" removes it")
	case failed > 0:
		return exit.Reported()
	default:
		out.Good("removed")
	}
	return nil
}
