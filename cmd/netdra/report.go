package main

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

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodepage"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// reportFlags are the flags of "report".
type reportFlags struct {
	preview
	socket, logDir string
	output, serve  string
}

func reportCommand(on machine, to console) *cobra.Command {
	flags := &reportFlags{}
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Make a page of the node: its devices, who holds them, what is wrong, and the chains of its claims",
		Long: `report makes one HTML file, which needs nothing else and fetches nothing: problems first; the machine with its NUMA nodes,
PCIe roots, physical and virtual functions, bridges, bonds and VLANs; for each device what is offered of it, who holds it, what
is left, and why it is hidden; and for every claim its chain with the times, results and errors of its steps.

Without -f the driver of this node is asked, and its log of CNI calls is read. With -f nothing is asked of anybody, the machine
may be one that "netdra facts" has recorded, and nobody knows who holds what.

With --serve the page is made anew whenever it is opened, until the command is ended, at an address of this machine only. The
address that is printed has a word in it that nobody else knows: other users of the machine may not read what the driver tells
root. From elsewhere go there with: ssh -L 9681:127.0.0.1:9681 NODE`,
		Example: `  # on a node, as root
  sudo netdra report -o report.html
  sudo netdra report --serve 127.0.0.1:9681

  # before policies are applied, for a recorded machine
  netdra report -f policies.yaml --from worker-1 -o report.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd.Context(), on, to) },
	}
	flags.addTo(cmd)
	set := cmd.Flags()
	set.StringVar(&flags.socket, "socket", socketHere(), "where the driver of this node answers, if there is no -f")
	set.StringVar(&flags.logDir, "log-dir", defaultLogDir, "where the driver logs CNI calls")
	set.StringVarP(&flags.output, "output", "o", "", "file to write the page to (default: the standard output)")
	set.StringVar(&flags.serve, "serve", "", "serve the page at this loopback address and port in place of writing it, for example 127.0.0.1:9681")
	cmd.MarkFlagsMutuallyExclusive("output", "serve")
	// The names of flags that exist are no errors.
	_ = cmd.MarkFlagFilename("output", "html")
	_ = cmd.MarkFlagDirname("log-dir")
	return cmd
}

func (f *reportFlags) run(ctx context.Context, on machine, to console) error {
	switch {
	case len(f.files) == 0 && f.from != "":
		return errors.New("a recording needs policies: give a file of them with -f")
	case f.serve != "":
		if len(f.files) > 0 {
			return errors.New("--serve shows what the driver of this node knows: leave -f out, or write a file with -o")
		}
		return f.serveReport(ctx, on, to)
	case f.output == "" && isTerminal(to.out):
		return errors.New("a terminal can't show the page: give a file with -o, for example -o report.html")
	}
	page, err := f.page(ctx, on, to.in)
	if err != nil {
		return err
	}
	if f.output == "" {
		_, err := to.out.Write(page)
		return err
	}
	if err := writeWhole(f.output, page); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	newPrinter(to.err).good("written to %s, %d KB", f.output, (len(page)+1023)/1024)
	return nil
}

// writeWhole replaces a file in one step. It is for the user's eyes: it names pods and claims. What is no file is not replaced:
// root would end the machine's /dev/null.
func writeWhole(path string, data []byte) error {
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
func (f *reportFlags) page(ctx context.Context, on machine, stdin io.Reader) ([]byte, error) {
	read := func() (nodepage.Node, error) { return f.fromFiles(ctx, on, stdin) }
	if len(f.files) == 0 {
		read = func() (nodepage.Node, error) { return f.fromDriver(ctx, on) }
	}
	node, err := read()
	if err != nil {
		return nil, err
	}
	node.At = time.Now()
	if on.clock != nil {
		node.At = on.clock.Now()
	}
	var page bytes.Buffer
	err = nodepage.Write(&page, nodepage.Of(node))
	return page.Bytes(), err
}

// fromFiles is a node of which only the machine and policies are known.
func (f *reportFlags) fromFiles(ctx context.Context, on machine, stdin io.Reader) (nodepage.Node, error) {
	policies, err := readPolicies(f.files, stdin)
	if err != nil {
		return nodepage.Node{}, err
	}
	facts, err := f.facts(ctx)
	if err != nil {
		return nodepage.Node{}, err
	}
	if err := f.complete(on, policies); err != nil {
		return nodepage.Node{}, err
	}
	node := nodepage.Node{
		Name: f.node, Facts: facts, Source: "what the driver would offer with the policies of files", Versions: versionsOf(nil).String(),
		Decision: policy.Resolve(facts, policies, policy.Node{Name: f.node, Labels: f.labels}),
	}
	if node.Result, err = draslices.Build(f.node, node.Decision, f.features); err != nil {
		return nodepage.Node{}, fmt.Errorf("--node: %w", err)
	}
	return node, nil
}

// fromDriver asks the driver of this node, and reads its machine and its log of CNI calls.
func (f *reportFlags) fromDriver(ctx context.Context, on machine) (nodepage.Node, error) {
	client := newDriverClient(f.socket)
	node := nodepage.Node{Asked: true, Source: "as the driver of the node knows it"}
	var believes nodestate.PolicyInputs
	var published []draslices.Entry
	for _, question := range []struct {
		path string
		into any
	}{{"/policies", &believes}, {"/published", &published}, {"/claims", &node.Claims}, {"/sandboxes", &node.Sandboxes}, {"/leftovers", &node.Leftovers}} {
		if err := client.read(ctx, question.path, question.into); err != nil {
			return node, err
		}
	}
	state := askState(ctx, f.socket)
	node.Versions = versionsOf(state).String()
	var addresses []netip.Addr
	if state != nil {
		addresses = state.Addresses
	}
	facts, err := on.facts(ctx, addresses)
	if err != nil {
		return node, err
	}
	node.Facts = withPublished(facts, published)
	with := f.preview // a page that is served is made again
	with.node, with.labels = believes.Node, believes.Labels
	if err := with.complete(on, believes.Policies); err != nil {
		return node, err
	}
	node.Name = with.node
	node.Decision = policy.Resolve(node.Facts, believes.Policies, policy.Node{Name: with.node, Labels: with.labels})
	if node.Result, err = draslices.Build(with.node, node.Decision, with.features); err != nil {
		return node, err
	}
	node.Result.Entries = asPublished(node.Result.Entries, published)
	node.Calls, node.Unread = readLogs(f.logDir, node.Claims)
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
