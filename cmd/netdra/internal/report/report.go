package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodepage"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Options are the flags of "report".
type Options struct {
	offers.Inputs
	Socket, LogDir string
	Output, Serve  string
}

// Run writes the page, or serves it.
func (f *Options) Run(ctx context.Context, deps osdeps.Deps, streams printer.Streams) error {
	switch {
	case len(f.Files) == 0 && f.Recording != "":
		return errors.New("a recording needs policies: give a file of them with -f")
	case f.Serve != "":
		if len(f.Files) > 0 {
			return errors.New("--serve shows what the driver of this node knows: leave -f out, or write a file with -o")
		}
		return f.serveReport(ctx, deps, streams)
	case f.Output == "" && printer.IsTerminal(streams.Out):
		return errors.New("a terminal can't show the page: give a file with -o, for example -o report.html")
	}
	page, err := f.page(ctx, deps, streams.In)
	if err != nil {
		return err
	}
	if f.Output == "" {
		_, err := streams.Out.Write(page)
		return err
	}
	if err := replaceFile(f.Output, page); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	printer.New(streams.Err).Good("written to %s, %d KB", f.Output, (len(page)+1023)/1024)
	return nil
}

// replaceFile replaces a file in one step. It is for the user's eyes: it names pods and claims. What is no file is not replaced:
// root would end the machine's /dev/null.
func replaceFile(path string, data []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file: leave -o out, and redirect the output", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// page reads everything and makes the page.
func (f *Options) page(ctx context.Context, deps osdeps.Deps, stdin io.Reader) ([]byte, error) {
	read := func() (nodepage.Node, error) { return f.fromFiles(ctx, deps, stdin) }
	if len(f.Files) == 0 {
		read = func() (nodepage.Node, error) { return f.fromDriver(ctx, deps) }
	}
	node, err := read()
	if err != nil {
		return nil, err
	}
	node.At = time.Now()
	if deps.Clock != nil {
		node.At = deps.Clock.Now()
	}
	var page bytes.Buffer
	err = nodepage.Write(&page, nodepage.Of(node))
	return page.Bytes(), err
}

// fromFiles is a node of which only the machine and policies are known.
func (f *Options) fromFiles(ctx context.Context, deps osdeps.Deps, stdin io.Reader) (nodepage.Node, error) {
	policies, err := manifest.ReadPolicies(f.Files, stdin)
	if err != nil {
		return nodepage.Node{}, err
	}
	facts, err := f.Facts(ctx)
	if err != nil {
		return nodepage.Node{}, err
	}
	if err := f.Complete(deps, policies); err != nil {
		return nodepage.Node{}, err
	}
	node := nodepage.Node{
		Name: f.Node, Facts: facts, Source: "what the driver would offer with the policies of files", Versions: nodeclient.VersionsOf(nil).String(),
		Decision: policy.Resolve(facts, policies, policy.Node{Name: f.Node, Labels: f.Labels}),
	}
	if node.Result, err = draslices.Build(f.Node, node.Decision, f.Features); err != nil {
		return nodepage.Node{}, fmt.Errorf("--node: %w", err)
	}
	return node, nil
}

// fromDriver asks the driver of this node, and reads its machine and its log of CNI calls.
func (f *Options) fromDriver(ctx context.Context, deps osdeps.Deps) (nodepage.Node, error) {
	client := nodeclient.New(f.Socket)
	node := nodepage.Node{Asked: true, Source: "as the driver of the node knows it"}
	var believes nodestate.PolicyInputs
	var published []draslices.Entry
	for _, question := range []struct {
		path string
		into any
	}{{"/policies", &believes}, {"/published", &published}, {"/claims", &node.Claims}, {"/sandboxes", &node.Sandboxes}, {"/leftovers", &node.Leftovers}} {
		if err := client.Get(ctx, question.path, question.into); err != nil {
			return node, err
		}
	}
	state := nodeclient.ReadState(ctx, f.Socket)
	node.Versions = nodeclient.VersionsOf(state).String()
	var addresses []netip.Addr
	if state != nil {
		addresses = state.Addresses
	}
	facts, err := deps.Facts(ctx, addresses)
	if err != nil {
		return node, err
	}
	node.Facts = offers.WithPublished(facts, published)
	with := f.Inputs // a page that is served is made again
	with.Node, with.Labels = believes.Node, believes.Labels
	if err := with.Complete(deps, believes.Policies); err != nil {
		return node, err
	}
	node.Name = with.Node
	node.Decision = policy.Resolve(node.Facts, believes.Policies, policy.Node{Name: with.Node, Labels: with.Labels})
	if node.Result, err = draslices.Build(with.Node, node.Decision, with.Features); err != nil {
		return node, err
	}
	node.Result.Entries = asPublished(node.Result.Entries, published)
	node.Calls, node.Unread = readLogs(f.LogDir, node.Claims)
	return node, nil
}

// asPublished are the entries that the driver publishes. It tells no more of them than what they stand for and their taints; what they
// have and take is as computed here, and not known of one that only a claim keeps published.
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

// readLogs reads the log of each claim. What can't be read is told, and missing.
func readLogs(dir string, claims []nodestate.Claim) (calls map[string][]cnichain.LoggedCall, unread []string) {
	calls = map[string][]cnichain.LoggedCall{}
	for i := range claims {
		claim := claims[i].Claim
		logged, err := cnichain.ReadCalls(dir, claim.Namespace, claim.Name)
		if err != nil {
			unread = append(unread, err.Error())
		}
		calls[claim.String()] = logged
	}
	return calls, unread
}
