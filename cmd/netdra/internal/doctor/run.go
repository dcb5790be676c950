package doctor

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

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// Options are the flags of "netdra doctor".
type Options struct {
	Root, Socket, Readyz, Form string
	All                        bool
}

// Gather reads the data for all checks. It returns an error only if there is a problem with --root. Other errors are
// recorded in the Input.
func (f *Options) Gather(ctx context.Context) (*Input, error) {
	root, closeRoot, err := openNode(f.Root)
	if err != nil {
		return nil, fmt.Errorf("cannot read --root %s: %w; name the directory where the node's file system is mounted",
			f.Root, exit.Cause(err))
	}
	defer closeRoot()
	socket := f.Socket
	if socket == "" {
		socket = filepath.Join(f.Root, nodeclient.ShippedSocket())
	}
	sources := Sources{
		Root: root, Path: f.Root, Query: nodeclient.New(socket).Get, Get: getUnix,
		Statfs:           unix.Statfs,
		MissingLinkTypes: host.MissingLinkTypes,
		Ready:            func(ctx context.Context) string { return probe(ctx, f.Readyz) },
	}
	return Gather(ctx, sources), nil
}

// openNode opens the node's file system. If the file system is mounted in a directory other than "/", symlinks cannot
// lead out of that directory. At "/", openNode does not use os.Root, which would reject absolute symlinks;
// distributions use such symlinks for /var/run and /lib.
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

// probe returns the reason, according to the readiness probe, why the driver is not ready. The result is empty if the
// driver is ready or does not answer.
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
	defer func() { _ = response.Body.Close() }() // harmless, because the body is only read
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil || response.StatusCode == http.StatusOK {
		return ""
	}
	return strings.TrimSpace(string(body))
}

// PrintFindings writes the findings by group. Unless all is true, checks that passed or did not run are only counted.
func PrintFindings(out *printer.Printer, findings []Finding, all bool) {
	group := ""
	for i := range findings {
		f := &findings[i]
		if (f.Level == OK || f.Level == Unknown) && !all {
			continue
		}
		if f.Group != group {
			if group != "" {
				out.Printf("")
			}
			group = f.Group
			out.Printf("%s", out.Colour(printer.Dim, group))
		}
		printFinding(out, f)
	}
	fails, warns := Count(findings, Fail), Count(findings, Warn)
	if group != "" {
		out.Printf("")
	}
	summary := fmt.Sprintf("%s, %s, %d passed%s", printer.Plural(fails, "fault"), printer.Plural(warns, "risk"),
		Count(findings, OK), skippedText(findings))
	switch {
	case fails > 0:
		out.Bad("%s", summary)
	case warns > 0:
		out.Warn("%s", summary)
	default:
		out.Good("this node is healthy: %s", summary)
	}
}

func skippedText(findings []Finding) string {
	byReason := map[string]int{}
	for i := range findings {
		if findings[i].Level == Unknown {
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
	return fmt.Sprintf(", %d not checked: %s", Count(findings, Unknown), strings.Join(reasons, ", "))
}

func printFinding(out *printer.Printer, f *Finding) {
	switch f.Level {
	case OK:
		out.Good("%s", f.What)
	case Unknown:
		out.Printf("? %s: not checked, %s", f.What, f.Why)
		return
	case Warn:
		out.Warn("%s", f.What)
	case Fail:
		out.Bad("%s", f.What)
	}
	for _, line := range []struct{ title, text string }{{"where", f.Where}, {"why", f.Why}, {"fix", f.Do},
		{"see", f.Source}} {
		if line.text != "" {
			out.Printf("    %s %s", out.Colour(printer.Dim, fmt.Sprintf("%-5s", line.title)), line.text)
		}
	}
}
