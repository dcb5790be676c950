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

// File is one of an archive.
type File struct {
	Name string
	Data []byte
}

// Write writes an archive. The files are for the eyes of their owner: they name pods and claims.
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

// mostBytes bounds what is unpacked of a node's archive.
const mostBytes = 512 << 20

// Read returns the files of an archive that a node has made, below a directory. A node can't name files outside of it,
// and nothing but regular files is taken.
//
// The node may be in the hands of somebody else: its archive may be a bomb, or name ../../.ssh/authorized_keys. Files
// are kept in memory only, bounded in sum.
func Read(data []byte, dir string) ([]File, error) { return read(data, dir, mostBytes) }

// read unpacks what a node sent, which may be anything if somebody else has the node: no more than most bytes are
// unpacked, and names stay inside of dir.
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
		// A sparse file is as large as its header says, whatever little the archive has of it.
		if most -= header.Size; most < 0 {
			return nil, fmt.Errorf("cannot read the bundle of %s: its files are too large; look at the node", dir)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, fmt.Errorf("cannot read the bundle of %s: %w", dir, err)
		}
		files = append(files, File{Name: strings.TrimPrefix(path.Join("/", dir, path.Join("/", header.Name)), "/"),
			Data: content})
	}
}
