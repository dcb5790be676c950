package release

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// item is a file in an archive: its path in the archive, and the local file that it is copied from. If source is empty,
// content is used.
type item struct {
	name, source string
	content      []byte
	mode         int64
}

// writeArchive writes items to a compressed tar file, sorted by name, owned by root, and all with the same time. The
// result does not depend on the machine: the gzip header contains neither a name nor a time. The tar format is USTAR,
// which supports only whole seconds and has no extension headers, which a newer Go version might write differently. The
// file is not written atomically; instead, the directory that contains it is renamed once it is complete.
func writeArchive(file string, made time.Time, items []item) (err error) {
	items = slices.SortedFunc(slices.Values(items), func(a, b item) int { return strings.Compare(a.name, b.name) })
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	packed := gzip.NewWriter(f) // without a name or a time
	archive := tar.NewWriter(packed)
	for _, i := range items {
		if err := addItem(archive, made, i); err != nil {
			return fmt.Errorf("cannot add %s: %w", i.name, err)
		}
	}
	return errors.Join(archive.Close(), packed.Close())
}

// addItem adds a file with the time of the commit and no owner, so that two runs create identical archives.
func addItem(archive *tar.Writer, made time.Time, i item) error {
	content := i.content
	if i.source != "" {
		var err error
		if content, err = os.ReadFile(i.source); err != nil {
			return err
		}
	}
	err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: i.name, Mode: i.mode, Size: int64(len(content)),
		ModTime: made, Format: tar.FormatUSTAR})
	if err != nil {
		return err
	}
	_, err = archive.Write(content)
	return err
}

// readArchive calls visit for each file in an archive written by writeArchive. It is safe for untrusted archives: it
// rejects everything except regular files with local paths, before a caller can join their names with a directory. It
// keeps only one file at a time in memory.
func readArchive(file string, visit func(name string, content []byte) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // used only for reading
	packed, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	archive := tar.NewReader(packed)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || !isClean(h.Name) {
			return fmt.Errorf("%q is not a file below the archive's folder", h.Name)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		if err := visit(h.Name, content); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

func isClean(name string) bool {
	return name != "" && path.Clean(name) == name && !path.IsAbs(name) && name != ".." &&
		!strings.HasPrefix(name, "../")
}
