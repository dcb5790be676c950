package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
)

// doctorFlags are the flags of "doctor".
type doctorFlags struct {
	root, socket, readyz, kubeconfig, form string
	all                                    bool
}

func doctorCommand(to console) *cobra.Command {
	flags := &doctorFlags{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong or risky on this node, and what to do about it",
		Long: `doctor looks at the node and at what its driver says: whether the container runtime calls the driver and reads what it writes,
versions with known faults, paths that differ between driver, kubelet and container runtime, CNI plugins that topologies name,
others that use the same devices, disks, policies and topologies that are not accepted, and what was left over. It changes
nothing. Run it as root on the node, or in a pod with --root where the node's file system is mounted.

With --kubeconfig, or $KUBECONFIG, the API server is asked, too: for API groups, features and the time.

Exit status: 0 nothing is wrong, 1 something is (✗; what is only risky, !, does not count), 2 nothing could be looked at.`,
		Example: `  sudo netdra doctor
  sudo netdra doctor --all                                      # also what is fine
  sudo netdra doctor --kubeconfig /etc/kubernetes/kubelet.conf
  sudo netdra doctor -o json | jq '.[] | select(.level == "fail")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkForm(flags.form); err != nil {
				return err
			}
			in, err := flags.gather(cmd.Context())
			if err != nil {
				return err
			}
			findings := doctor.Examine(in)
			if flags.form == formText {
				out := newPrinter(to.out)
				printFindings(out, findings, flags.all)
				out.say("%s", out.colour(dim, versionsOfInput(in).String()))
			} else if err := printResult(to.out, flags.form, findings); err != nil {
				return err
			}
			if doctor.Count(findings, doctor.Fail) > 0 {
				return &exitError{code: exitFailed, err: errShown}
			}
			return nil
		},
	}
	set := cmd.Flags()
	set.StringVar(&flags.root, "root", "/", "directory with the node's file system")
	set.StringVar(&flags.socket, "socket", os.Getenv(socketVariable), "where the driver answers (default: "+defaultSocket+" below --root)")
	set.StringVar(&flags.readyz, "readyz", "http://127.0.0.1:9680/readyz", "the driver's probe, which is asked if its socket does not answer; empty: none")
	set.StringVar(&flags.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "how to reach the API server; empty: it is not asked")
	set.BoolVar(&flags.all, "all", false, "show also what is fine")
	formFlag(cmd, &flags.form)
	_ = cmd.MarkFlagDirname("root") // the name of a flag that exists is no error
	return cmd
}

func versionsOfInput(in *doctor.Input) versions {
	if in.Driver == nil {
		return versionsOf(nil)
	}
	return versionsOf(&in.Driver.State)
}

// gather reads everything.
func (f *doctorFlags) gather(ctx context.Context) (*doctor.Input, error) {
	root, closeRoot, err := openNode(f.root)
	if err != nil {
		return nil, fmt.Errorf("--root: %w", err)
	}
	defer closeRoot()
	socket := f.socket
	if socket == "" {
		socket = filepath.Join(f.root, defaultSocket)
	}
	from := doctor.Sources{
		Root: root, Path: f.root, Ask: newDriverClient(socket).read, Statfs: unix.Statfs,
		Ready: func(ctx context.Context) string { return probe(ctx, f.readyz) },
	}
	if f.kubeconfig != "" {
		from.Cluster = func(ctx context.Context) *doctor.Cluster { return askCluster(ctx, f.kubeconfig) }
	}
	return doctor.Gather(ctx, from), nil
}

// openNode opens a node's file system. Links in one that is mounted elsewhere don't lead out of it.
func openNode(path string) (fs.FS, func(), error) {
	if filepath.Clean(path) == "/" {
		return os.DirFS("/"), func() {}, nil
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, nil, err
	}
	return root.FS(), func() { _ = root.Close() }, nil
}

// probe is what the driver's probe says if it is not ready; empty if nobody answers.
func probe(ctx context.Context, url string) string {
	if url == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }() // only read
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil || response.StatusCode == http.StatusOK {
		return ""
	}
	return strings.TrimSpace(string(body))
}

// printFindings writes groups of lines. What is fine, or could not be looked at, is counted, unless all is wanted.
func printFindings(out *printer, findings []doctor.Finding, all bool) {
	group := ""
	for i := range findings {
		f := &findings[i]
		if (f.Level == doctor.OK || f.Level == doctor.Unknown) && !all {
			continue
		}
		if f.Group != group {
			if group != "" {
				out.say("")
			}
			group = f.Group
			out.say("%s", out.colour(dim, group))
		}
		printFinding(out, f)
	}
	fails, warns := doctor.Count(findings, doctor.Fail), doctor.Count(findings, doctor.Warn)
	if group != "" {
		out.say("")
	}
	summary := fmt.Sprintf("%d wrong, %d risky, %d fine%s", fails, warns, doctor.Count(findings, doctor.OK), notLookedAt(findings))
	switch {
	case fails > 0:
		out.bad("%s", summary)
	case warns > 0:
		out.warn("%s", summary)
	default:
		out.good("this node is healthy: %s", summary)
	}
}

// notLookedAt counts, by reason, what could not be judged.
func notLookedAt(findings []doctor.Finding) string {
	byReason := map[string]int{}
	for i := range findings {
		if findings[i].Level == doctor.Unknown {
			byReason[findings[i].Why]++
		}
	}
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		reasons = append(reasons, fmt.Sprintf("%s (%d)", reason, byReason[reason]))
	}
	if len(reasons) == 0 {
		return ""
	}
	return fmt.Sprintf(", %d not looked at: %s", doctor.Count(findings, doctor.Unknown), strings.Join(reasons, ", "))
}

func printFinding(out *printer, f *doctor.Finding) {
	switch f.Level {
	case doctor.OK:
		out.good("%s", f.What)
	case doctor.Unknown:
		out.say("? %s: not looked at, %s", f.What, f.Why)
		return
	case doctor.Warn:
		out.warn("%s", f.What)
	case doctor.Fail:
		out.bad("%s", f.What)
	}
	for _, line := range []struct{ title, text string }{{"where", f.Where}, {"why", f.Why}, {"do", f.Do}, {"see", f.Source}} {
		if line.text != "" {
			out.say("    %s %s", out.colour(dim, fmt.Sprintf("%-5s", line.title)), line.text)
		}
	}
}
