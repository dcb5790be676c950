package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// File is a file in an archive.
type File struct {
	Name string
	Data []byte
}

// Write writes an archive. Only the owner can read the extracted files, because they contain pod and claim names.
func Write(w io.Writer, files []File, now time.Time) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	for _, file := range files {
		header := &tar.Header{Name: file.Name, Mode: 0o600, Size: int64(len(file.Data)), ModTime: now,
			Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("cannot add %s: %w", file.Name, err)
		}
		if _, err := archive.Write(file.Data); err != nil {
			return fmt.Errorf("cannot add %s: %w", file.Name, err)
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
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
		// The size of a sparse file is the size in its header, no matter how few bytes the archive contains.
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
