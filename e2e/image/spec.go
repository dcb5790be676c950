package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"
)

// defaultPath is the PATH for programs in an image that does not set one.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Spec describes an image. All paths inside the image are absolute and clean. Write does not change the Spec. All files
// are owned by root (user and group), regardless of User, and all times are the Unix epoch.
type Spec struct {
	// Ref is the name under which the image is imported, for example "localhost/driver:e2e".
	Ref string
	// Files are the regular files. Their parent directories are created with mode 0755.
	Files []File
	// Links maps the paths of symbolic links in the image to their targets.
	Links map[string]string
	// Dirs are directories that exist even if they are empty. /tmp always exists, with mode 1777.
	Dirs []string
	// Entrypoint and Cmd form the command line.
	Entrypoint, Cmd []string
	// Env contains environment variables in the form NAME=value. PATH is added unless it is set.
	Env []string
	// Labels describe the image for users and tools.
	Labels map[string]string
	// User is the numeric user ID, optionally with a group ID, for example "65532:65532"; empty means root.
	User string
	// Architecture is a GOARCH value; empty means this machine's architecture.
	Architecture string
	// Compressed makes the layer smaller but packing slower. Registries store the layer as it is, so the image's digest
	// depends on this setting.
	Compressed bool
}

// File is one regular file in an image.
type File struct {
	// Path is the path of the file in the image.
	Path string
	// Source is the local file to copy; if it is empty, Data is used.
	Source string
	// Data is the file's content if Source is empty.
	Data []byte
	// Mode is the permission bits; zero means 0755.
	Mode fs.FileMode
}

// entry is one file, link or directory in the layer.
type entry struct {
	path   string
	kind   byte
	mode   int64
	target string
	file   File
}

func (s Spec) architecture() string {
	if s.Architecture == "" {
		return runtime.GOARCH
	}
	return s.Architecture
}

func (s Spec) layerType() string {
	if s.Compressed {
		return typeGzip
	}
	return typeLayer
}

func (s Spec) env() []string {
	if slices.ContainsFunc(s.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		return s.Env
	}
	return append([]string{defaultPath}, s.Env...)
}

// entries returns all entries in the layer, parents before children. Its error lists all problems, not only the first
// one. The order of files, links and directories in the spec does not matter.
func (s Spec) entries() ([]entry, error) {
	if err := checkRef(s.Ref); err != nil {
		return nil, err
	}
	items := map[string]entry{}
	add := func(e entry) error {
		if err := checkPath(e.path); err != nil {
			return err
		}
		if _, taken := items[e.path]; taken {
			return fmt.Errorf("%q is in the image twice: remove one of the two", e.path)
		}
		items[e.path] = e
		return nil
	}
	var errs []error
	for _, f := range s.Files {
		mode := f.Mode.Perm()
		if mode == 0 {
			mode = 0o755
		}
		errs = append(errs, add(entry{path: f.Path, kind: tar.TypeReg, mode: int64(mode), file: f}))
	}
	for name, target := range s.Links {
		if target == "" || strings.ContainsRune(target, 0) {
			errs = append(errs, fmt.Errorf("link %q has the bad target %q", name, target))
		}
		errs = append(errs, add(entry{path: name, kind: tar.TypeSymlink, mode: 0o777, target: target}))
	}
	for _, d := range s.Dirs {
		errs = append(errs, add(entry{path: d, kind: tar.TypeDir, mode: 0o755}))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return withParents(items)
}

// withParents adds missing parent directories and sorts the entries. It rejects entries below a file or a link, because
// unpacking such a layer could write outside the target directory.
func withParents(items map[string]entry) ([]entry, error) {
	if _, ok := items["/tmp"]; !ok {
		items["/tmp"] = entry{path: "/tmp", kind: tar.TypeDir, mode: 0o1777}
	}
	out := make([]entry, 0, len(items))
	for _, e := range items {
		out = append(out, e)
	}
	for _, e := range out {
		for d := path.Dir(e.path); d != "/"; d = path.Dir(d) {
			parent, ok := items[d]
			if ok && parent.kind != tar.TypeDir {
				return nil, fmt.Errorf("%q is below %q, which is not a directory", e.path, d)
			}
			items[d] = entry{path: d, kind: tar.TypeDir, mode: 0o755}
			if ok {
				items[d] = parent
			}
		}
	}
	out = out[:0]
	for _, e := range items {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return out, nil
}

// checkRef rejects names without a tag, because the kubelet would append ":latest" and would then not find the image.
func checkRef(ref string) error {
	name, tag, ok := strings.Cut(ref[strings.LastIndex(ref, "/")+1:], ":")
	if !ok || name == "" || tag == "" || strings.ContainsAny(ref, " \t\r\n\x00@") {
		return fmt.Errorf("%q is not an image name: use the form registry/name:tag", ref)
	}
	return nil
}

func checkPath(p string) error {
	if p == "/" || !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
		return fmt.Errorf("%q is not a path inside an image: it must be absolute, clean and not the root", p)
	}
	return nil
}

// writeLayer writes the image's file system as a tar stream.
func writeLayer(w io.Writer, entries []entry) error {
	tw := tar.NewWriter(w)
	for _, e := range entries {
		if err := writeEntry(tw, e); err != nil {
			return fmt.Errorf("cannot add %q: %w", e.path, err)
		}
	}
	return tw.Close()
}

// writeEntry writes one entry in a layer. Times and owners are constant, so a layer's digest depends only on its
// content.
func writeEntry(tw *tar.Writer, e entry) error {
	h := &tar.Header{Typeflag: e.kind, Name: e.path[1:], Mode: e.mode, Linkname: e.target, ModTime: time.Unix(0, 0)}
	if e.kind == tar.TypeDir {
		h.Name += "/"
	}
	if e.kind != tar.TypeReg {
		return tw.WriteHeader(h)
	}
	if e.file.Source == "" {
		h.Size = int64(len(e.file.Data))
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		_, err := tw.Write(e.file.Data)
		return err
	}
	return copyFile(tw, h, e.file.Source)
}

// copyFile adds a local file. It gets the size from the open file, and archive/tar returns an error if the size changes
// during the copy.
func copyFile(tw *tar.Writer, h *tar.Header, source string) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // used only for reading
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", source)
	}
	h.Size = info.Size()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}
