package nodeclient

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// ReleaseOptions are the flags of "netdra release".
type ReleaseOptions struct {
	Socket, Form string
	// All selects every item that the command would otherwise list.
	All bool
	// Orphans selects orphaned files instead of failed cleanups.
	Orphans bool
	// Forget abandons a cleanup if it fails again.
	Forget bool
}

// Run lists failed cleanups or orphaned files. If keys or All is set, the driver retries the cleanups or removes the
// files. Run returns an error if any of these actions fails. The driver performs the actions, because only the driver
// holds the locks that protect pods while they are starting.
func (f *ReleaseOptions) Run(ctx context.Context, streams printer.Streams, keys []string) error {
	client := New(f.Socket)
	if f.Forget && len(keys) == 0 {
		return exit.Refusef("--forget requires the KEY of each cleanup to abandon; list them with \"netdra release\"")
	}
	if f.Orphans {
		if len(keys) > 0 {
			return exit.Refusef("--orphans takes no KEY; omit it, or use --all to remove every orphaned file")
		}
		return f.releaseOrphans(ctx, streams, client)
	}
	answers, err := Read(ctx, client.Get, nodeapi.PathLeftovers)
	if err != nil {
		return err
	}
	if f.All {
		for i := range answers.Leftovers {
			keys = append(keys, answers.Leftovers[i].Key)
		}
	}
	if len(keys) == 0 {
		return listLeftovers(streams, f.Form, answers.Leftovers)
	}
	return retryLeftovers(ctx, printer.New(streams.Out), client, keys, f.Forget)
}

func listLeftovers(streams printer.Streams, form string, leftovers []executor.Leftover) error {
	err := printer.List(streams.Out, form, leftovers, []printer.Column[executor.Leftover]{
		{Title: "KEY", Value: func(l *executor.Leftover) string { return l.Key }},
		{Title: "DEVICE", Value: func(l *executor.Leftover) string {
			if device := l.Step().Step.Device; device != nil {
				return device.Name
			}
			return ""
		}},
		{Title: "QUARANTINED", Value: func(l *executor.Leftover) string {
			return map[bool]string{true: "yes", false: "no"}[l.Quarantines() != nil]
		}},
		{Title: "POD", Value: func(l *executor.Leftover) string { return l.Attachment.Pod.String() }},
		{Title: "STEP", Value: func(l *executor.Leftover) string { return l.Step().Step.Name }},
		{Title: "SINCE", Value: func(l *executor.Leftover) string { return printer.Time(l.Since) }},
		{Title: "ATTEMPTS", Value: func(l *executor.Leftover) string { return fmt.Sprint(l.Attempts) }},
	}, "✓ no failed cleanups")
	for i := range leftovers {
		if form == printer.FormTable || form == printer.FormWide {
			printer.New(streams.Out).Warn("%s: %s", leftovers[i].Key, leftovers[i].Reason)
		}
	}
	return err
}

// retryLeftovers retries the cleanups for all keys, even if one fails. It sends a separate request for each key,
// because each retry may take minutes.
func retryLeftovers(ctx context.Context, out *printer.Printer, client Client, keys []string, forget bool) error {
	failed := false
	for _, key := range keys {
		query := url.Values{"key": {key}}
		if forget {
			query.Set("forget", "true")
		}
		failure, err := client.send(ctx, http.MethodPost, nodeapi.PathLeftovers+"?"+query.Encode())
		switch {
		case err != nil:
			failed = true
			out.Bad("%s: %v", key, err)
		case len(failure) > 0:
			out.Warn("%s: abandoned; leftovers of its plugin, such as addresses and rules, stay on this node: %s",
				key, strings.TrimSpace(string(failure)))
		default:
			out.Good("%s: cleaned up", key)
		}
	}
	if failed {
		if forget {
			out.Printf("A cleanup can only be abandoned while its device is on the host. " +
				"Drivers older than netdra only retry.")
		} else {
			out.Printf("To abandon a cleanup that can never succeed, run: netdra release KEY --forget")
		}
		return exit.Status(exit.Failed)
	}
	return nil
}

// releaseOrphans lists orphaned files. If All is set, the driver first removes them; files that could not be removed
// are listed with an error.
func (f *ReleaseOptions) releaseOrphans(ctx context.Context, streams printer.Streams, client Client) error {
	method := http.MethodGet
	if f.All {
		method = http.MethodPost
	}
	var orphans []nodestate.Orphan
	if err := client.sendAndDecode(ctx, method, nodeapi.PathOrphans, &orphans); err != nil {
		return err
	}
	err := printer.List(streams.Out, f.Form, orphans, []printer.Column[nodestate.Orphan]{
		{Title: "KIND", Value: func(o *nodestate.Orphan) string { return o.Kind }},
		{Title: "PATH", Value: func(o *nodestate.Orphan) string { return o.Path }},
		{Title: "CLAIM UID", Wide: true, Value: func(o *nodestate.Orphan) string { return o.Claim }},
	}, "there are no orphaned files")
	if err != nil || len(orphans) == 0 {
		return err
	}
	failed, out := 0, printer.New(streams.Err)
	for i := range orphans {
		if orphans[i].Error != "" {
			failed++
			out.Bad("%s: %s", orphans[i].Path, orphans[i].Error)
		}
	}
	switch {
	case !f.All:
		out.Printf("to remove them, run \"netdra release --orphans --all\"")
	case failed > 0:
		return exit.Status(exit.Failed)
	default:
		out.Good("removed")
	}
	return nil
}
