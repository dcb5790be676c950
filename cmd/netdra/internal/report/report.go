package report

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodepage"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Options are the flags of "report".
type Options struct {
	offers.Inputs
	LogDir, Output, Serve string
	// Root is where the node's file system is, for what doctor looks at.
	Root string
}

// Run writes the page, or serves it.
func (f *Options) Run(ctx context.Context, deps osdeps.Deps, streams printer.Streams) error {
	switch {
	case len(f.Files) == 0 && f.Recording != "":
		return errors.New("a recording needs policies; give a file of them with -f")
	case f.Serve != "":
		if len(f.Files) > 0 {
			return errors.New("--serve shows what the driver of this node knows; leave -f out, or write a file with -o")
		}
		return f.serveReport(ctx, deps, streams)
	case f.Output == "" && printer.IsTerminal(streams.Out):
		return printer.ErrTerminal()
	}
	page, err := f.page(ctx, deps, streams)
	if err != nil {
		return err
	}
	return printer.Save(streams, f.Output, page)
}

// page reads everything and makes the page. Nothing is cached between two calls: a page that is served shows the node
// as it is.
func (f *Options) page(ctx context.Context, deps osdeps.Deps, streams printer.Streams) ([]byte, error) {
	s, err := f.Read(ctx, deps, streams, nodeapi.PathLeftovers)
	if err != nil {
		return nil, err
	}
	node := f.nodeOf(s)
	if s.Answers != nil {
		f.examine(ctx, &node)
	}
	node.Time = time.Now()
	if deps.Clock != nil {
		node.Time = deps.Clock.Now()
	}
	var page bytes.Buffer
	err = nodepage.Write(&page, nodepage.Build(node))
	return page.Bytes(), err
}

// nodeOf is the node as the page shows it. Without the driver's answers only the machine and the policies are known.
func (f *Options) nodeOf(s *offers.Snapshot) nodepage.Node {
	node := nodepage.Node{
		Name: s.Node.Name, Versions: s.Versions().String(), Facts: s.Facts, Decision: s.Decision, Result: s.Result,
		CNIPlugins: sets.List(s.Features.CNIBinaries), UnusableCNIs: s.Features.UnusableCNIs,
		Source: "what the driver would offer with the policies of files",
	}
	if answers := s.Answers; answers != nil {
		node.Asked, node.Source = true, "as the driver of the node knows it"
		node.Claims, node.Sandboxes, node.Leftovers = answers.Claims, answers.Sandboxes, answers.Leftovers
		node.Refused = answers.State.Refused
		node.Result.Entries = asPublished(node.Result.Entries, answers.Published)
		node.Calls, node.Unread = readLogs(f.LogDir, node.Claims)
	}
	return node
}

// examine adds what doctor finds wrong or risky on the node, so that the page shows no node as healthy that is not.
func (f *Options) examine(ctx context.Context, node *nodepage.Node) {
	options := doctor.Options{Root: f.Root, Socket: f.Socket}
	input, err := options.Gather(ctx)
	if err != nil {
		node.Unread = append(node.Unread, err.Error())
		return
	}
	for _, finding := range doctor.Examine(input) {
		if finding.Level != doctor.Fail && finding.Level != doctor.Warn || isOnPage(finding.Check) {
			continue
		}
		problem := nodepage.Problem{Urgent: finding.Level == doctor.Fail, Where: cmp.Or(finding.Where, "the node"),
			What: finding.What, ToDo: finding.Do}
		if finding.Why != "" {
			problem.What += ": " + finding.Why
		}
		node.Found = append(node.Found, problem)
	}
}

// isOnPage reports whether the page itself tells what a check of doctor finds, in other words.
func isOnPage(check string) bool {
	return slices.Contains([]string{"gone-devices", "pod-interfaces", "quarantine", "attaching"}, check)
}

// asPublished are the entries that the driver publishes. It tells no more of them than what they stand for and their
// taints; what they have and take is as computed here, and not known of one that only a claim keeps published. Taints
// are the driver's, since it alone knows what is quarantined or withdrawn.
func asPublished(computed, published []draslices.Entry) []draslices.Entry {
	byID := make(map[draslices.EntryID]*draslices.Entry, len(computed))
	for i := range computed {
		byID[draslices.EntryID{Pool: computed[i].Pool, Name: computed[i].Name}] = &computed[i]
	}
	entries := make([]draslices.Entry, 0, len(published))
	for _, entry := range published {
		if same := byID[draslices.EntryID{Pool: entry.Pool, Name: entry.Name}]; same != nil {
			taints := entry.Spec.Taints
			entry.Spec = same.Spec
			entry.Spec.Taints = taints
		}
		entries = append(entries, entry)
	}
	return entries
}

// readLogs reads the log of each claim. It returns what could not be read, so that the page can name it.
func readLogs(dir string, claims []nodestate.Claim) (calls map[string][]calllog.Call, unread []string) {
	calls = map[string][]calllog.Call{}
	for i := range claims {
		claim := claims[i].Claim
		logged, err := calllog.Read(dir, claim.Namespace, claim.Name)
		if err != nil {
			unread = append(unread, err.Error())
		}
		calls[claim.String()] = logged
	}
	return calls, unread
}
