package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
)

// Command runs a netdra command line, and returns its exit status.
type Command func(ctx context.Context, streams printer.Streams, arguments ...string) int

// nodeCommands returns the commands whose output is in a node's bundle, each preceded by the name of its file.
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

// Node collects the files from this node. Errors from commands are in the file "commands.txt". Commands run
// sequentially in this process, with their usual arguments, so that the bundle contains the same output that users see.
// A JSON file that cannot be redacted is omitted.
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
			// Redact all files, not only the log, because leftovers also contain their steps' configurations.
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

// clusterPaths returns the lists from the API server that are in a cluster's bundle, each preceded by the name of its
// file.
func clusterPaths() [][2]string {
	const ours, resource = "/apis/networking.dra.io/v1alpha1/", "/apis/resource.k8s.io/v1/"
	return [][2]string{
		{"version.json", "/version"}, {"networktopologies.json", ours + "networktopologies"},
		{"deviceexposurepolicies.json", ours + "deviceexposurepolicies"},
		{"cnipluginschemas.json", ours + "cnipluginschemas"}, {"deviceclasses.json", resource + "deviceclasses"},
		{"resourceslices.json", resource + "resourceslices?fieldSelector=spec.driver%3Ddra.networking"},
	}
}

// Cluster collects the objects in the cluster that the caller is permitted to read. Errors are in the file
// "errors.txt".
func Cluster(ctx context.Context, cluster *remote.Cluster) []File {
	var files []File
	var problems strings.Builder
	for _, list := range clusterPaths() {
		data, err := cluster.Raw(ctx, list[1])
		if err == nil {
			data, err = clean(data)
		}
		if err != nil {
			_, _ = fmt.Fprintf(&problems, "cannot get %s: %v\n", list[1], err) // never fails
			continue
		}
		files = append(files, File{Name: "cluster/" + list[0], Data: data})
	}
	if problems.Len() > 0 {
		files = append(files, File{Name: "cluster/errors.txt", Data: []byte(problems.String())})
	}
	return files
}

// clean redacts a list of objects. It removes the annotation in which kubectl stores the applied object, because
// redaction does not find keys inside text.
func clean(data []byte) ([]byte, error) {
	var list map[string]any
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("cannot read the answer: %w", err)
	}
	items, _ := list["items"].([]any) // other responses have no items
	for _, item := range items {
		if object, valid := item.(map[string]any); valid {
			unstructured.RemoveNestedField(object, "metadata", "managedFields")
			unstructured.RemoveNestedField(object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return calllog.Redact(data)
}

// Remote collects the files from a node, or from all nodes if the name is empty, and the files about the cluster.
// Errors from nodes are also in the bundle. It returns an error if the bundle contains no node.
func Remote(ctx context.Context, cluster *remote.Cluster, node string) ([]File, error) {
	query := func(ctx context.Context, node string) ([]File, error) {
		answer, err := cluster.Run(ctx, node, "bundle")
		if err != nil {
			return nil, err
		}
		if answer.Code != exit.OK {
			return nil, fmt.Errorf("cannot create the bundle of node %s: exit status %d of netdra there: %s", node,
				answer.Code, said(&answer))
		}
		found, err := Read(answer.Stdout, path.Join("nodes", node))
		if err != nil && answer.Stderr != "" {
			err = fmt.Errorf("%w; netdra there: %s", err, said(&answer))
		}
		return found, err
	}
	files := Cluster(ctx, cluster)
	if node != "" {
		found, err := query(ctx, node)
		return append(files, found...), err
	}
	answers, err := remote.Each(ctx, cluster, query)
	for i := range answers {
		files = append(files, answers[i].Answer...)
		if answers[i].Err != nil {
			files = append(files, File{Name: path.Join("nodes", answers[i].Node, "error.txt"),
				Data: []byte(answers[i].Err.Error() + "\n")})
		}
	}
	return files, err
}

// said returns netdra's error output on a node.
func said(answer *remote.Answer) string {
	return cmp.Or(printer.Sanitize(answer.Stderr, false), "no error message; run it on the node")
}

// File is a file in an archive.
type File struct {
	Name string
	Data []byte
}

// Write returns an archive. Only the owner can read the extracted files, because they contain pod and claim names.
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

// mostBytes limits the unpacked size of a node's archive.
const mostBytes = 512 << 20

// Read returns the regular files from a node's archive, with names below a directory. Names cannot leave that
// directory.
//
// The node may be compromised: its archive may be a decompression bomb, or contain ../../.ssh/authorized_keys. Files
// are only kept in memory, with a limited total size.
func Read(data []byte, dir string) ([]File, error) { return read(data, dir, mostBytes) }

// read unpacks the archive of a possibly compromised node: at most most bytes, with names inside dir.
func read(data []byte, dir string, most int64) ([]File, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("cannot read the bundle of %s: %w", dir, err)
	}
	archive := tar.NewReader(io.LimitReader(unzipped, most))
	var files []File
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the bundle of %s: %w", dir, err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		// The size of a sparse file is the size in its header, regardless of how few bytes the archive contains.
		if most -= header.Size; most < 0 {
			return nil, fmt.Errorf("cannot read the bundle of %s: its files are too large; inspect the node", dir)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, fmt.Errorf("cannot read the bundle of %s: %w", dir, err)
		}
		files = append(files, File{Name: strings.TrimPrefix(path.Join("/", dir, path.Join("/", header.Name)), "/"),
			Data: content})
	}
}
