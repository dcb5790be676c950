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

// Options are the flags of "netdra report".
type Options struct {
	offers.Inputs
	LogDir, Output, Serve string
	// Root is the directory with the node's file system, for the checks in doctor.
	Root string
}

// Run writes or serves the page.
func (f *Options) Run(ctx context.Context, deps osdeps.Deps, streams printer.Streams) error {
	switch {
	case len(f.Files) == 0 && f.Recording != "":
		return errors.New("a recording needs policies; name a file of policies with -f")
	case f.Serve != "":
		if len(f.Files) > 0 {
			return errors.New("--serve only shows data of this node's driver; omit -f, or write a file with --file")
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

// page reads all data and returns the page. It caches nothing, so that a served page always shows the current state.
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

// nodeOf returns the data for the page. Without the driver's answers, it only contains the machine and the policies.
func (f *Options) nodeOf(s *offers.Snapshot) nodepage.Node {
	node := nodepage.Node{
		Name: s.Node.Name, Versions: s.Versions().String(), Facts: s.Facts, Decision: s.Decision, Result: s.Result,
		CNIPlugins: sets.List(s.Features.CNIBinaries), UnusableCNIs: s.Features.UnusableCNIs,
		Source: "simulated: the devices that the driver would offer with the policies in the given files",
	}
	if answers := s.Answers; answers != nil {
		node.Asked, node.Source = true, "data of the node's driver"
		node.Claims, node.Sandboxes, node.Leftovers = answers.Claims, answers.Sandboxes, answers.Leftovers
		node.Refused = answers.State.Refused
		node.Result.Entries = asPublished(node.Result.Entries, answers.Published)
		node.Calls, node.Unread = readLogs(f.LogDir, node.Claims)
	}
	return node
}

// examine adds the faults and risks that doctor finds, so that the page does not show a faulty node as healthy.
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

// isOnPage reports whether the page itself already reports the findings of a doctor check in other words.
func isOnPage(check string) bool {
	return slices.Contains([]string{"gone-devices", "pod-interfaces", "quarantine", "attaching"}, check)
}

// asPublished returns the entries that the driver publishes. The driver only reports their devices and taints; the rest
// of the specification is computed here. It is unknown for entries that are only published because a claim holds them.
// Taints come from the driver, since only it knows which devices are quarantined or withdrawn.
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

// readLogs reads the log of each claim. unread contains the errors, which the page shows.
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
