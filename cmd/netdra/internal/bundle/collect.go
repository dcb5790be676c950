package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
)

// Command runs a netdra command line and returns the exit status.
type Command func(ctx context.Context, streams printer.Streams, arguments ...string) int

// nodeCommands returns the commands whose output is included in a node's bundle. The first element of each is the name
// of the output file.
func nodeCommands() [][]string {
	return [][]string{
		{"versions.json", "version", "-o", "json"}, {"doctor.txt", "doctor", "--all"},
		{"doctor.json", "doctor", "-o", "json"}, {"devices.txt", "devices", "-o", "wide"},
		{"devices.json", "devices", "-o", "json"}, {"claims.txt", "claims", "-o", "wide"},
		{"claims.json", "claims", "-o", "json"}, {"leftovers.json", "release", "-o", "json"},
		{"orphans.json", "release", "--orphans", "-o", "json"}, {"facts.json", "facts", "-o", "json"},
		{"report.html", "report"}, {"cni-calls.json", "trace", "-o", "json"},
	}
}

// Node collects the files for this node. The exit status of each command and any errors are recorded in "commands.txt".
// The commands run sequentially in this process, with their usual arguments, so that the bundle contains the output
// that users see. A JSON file that cannot be redacted is omitted.
func Node(ctx context.Context, run Command) []File {
	var files []File
	var commands strings.Builder
	collect := func(name string, arguments ...string) []byte {
		var stdout, stderr bytes.Buffer
		code := run(ctx, printer.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, arguments...)
		_, _ = fmt.Fprintf(&commands, "netdra %s: exit status %d\n%s", strings.Join(arguments, " "), code,
			stderr.String()) // never fails
		data := stdout.Bytes()
		if strings.HasSuffix(name, ".json") && len(data) > 0 {
			// Redact every JSON file, not only the log, because leftovers also contain the configurations of their
			// steps.
			var err error
			if data, err = calllog.Redact(data); err != nil {
				_, _ = fmt.Fprintf(&commands, "%s is omitted: %v\n", name, err) // never fails
				return nil
			}
		}
		files = append(files, File{Name: name, Data: data})
		return data
	}
	for _, line := range nodeCommands() {
		output := collect(line[0], line[1:]...)
		if line[1] != "trace" {
			continue
		}
		var logged []string
		if err := json.Unmarshal(output, &logged); err != nil {
			_, _ = fmt.Fprintf(&commands, "cannot read the list of claims in the log: %v\n", err) // never fails
		}
		for _, claim := range logged {
			namespace, name, _ := strings.Cut(claim, "/")
			collect(path.Join("cni-calls", path.Base(namespace)+"_"+path.Base(name)+".json"), "trace", "-o", "json",
				"--", claim)
		}
	}
	return append(files, File{Name: "commands.txt", Data: []byte(commands.String())})
}

// File is a file in an archive.
type File struct {
	Name string
	Data []byte
}

// Write returns the files as an archive. Only the owner can read the extracted files, because they contain pod and
// claim names.
func Write(files []File, now time.Time) ([]byte, error) {
	var data bytes.Buffer
	zipped := gzip.NewWriter(&data)
	archive := tar.NewWriter(zipped)
	for _, file := range files {
		header := &tar.Header{Name: file.Name, Mode: 0o600, Size: int64(len(file.Data)), ModTime: now,
			Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("cannot add %s: %w", file.Name, err)
		}
		if _, err := archive.Write(file.Data); err != nil {
			return nil, fmt.Errorf("cannot add %s: %w", file.Name, err)
		}
	}
	err := errors.Join(archive.Close(), zipped.Close())
	return data.Bytes(), err
}
