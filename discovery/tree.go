package discovery

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Tree represents part of a file system as a value, with paths as in io/fs. It makes it possible to store a sysfs in a
// single file, since Go module archives and some file systems do not allow colons in file names. Parent directories of
// entries are implied.
type Tree struct {
	// Links maps symbolic links to their targets. A tree does not follow symbolic links; readers resolve the paths
	// themselves.
	Links map[string]string `json:"links,omitempty"`
	// Files maps files to their content, without leading or trailing white space.
	Files map[string]string `json:"files,omitempty"`
	// Dirs lists directories that may be empty.
	Dirs []string `json:"dirs,omitempty"`
	// Errors maps files to the name of the errno value (EIO, EACCES...) that is returned when they are read.
	Errors map[string]string `json:"errors,omitempty"`
}

// FS returns the tree as a file system. The file system does not reflect later changes to the tree.
func (t Tree) FS() fs.ReadLinkFS {
	f := &treeFS{entries: map[string]treeEntry{}, children: map[string][]fs.DirEntry{}}
	for name, target := range t.Links {
		f.add(treeEntry{name: name, mode: fs.ModeSymlink | 0o777, content: target})
	}
	for name, content := range t.Files {
		f.add(treeEntry{name: name, mode: 0o444, content: content})
	}
	for _, name := range t.Dirs {
		f.add(treeEntry{name: name, mode: fs.ModeDir | 0o555})
	}
	for name, errno := range t.Errors {
		entry := f.entries[name]
		if entry.name == "" {
			entry = treeEntry{name: name, mode: 0o444}
		}
		entry.err = errnoOf(errno)
		delete(f.entries, name) // replaced by the new entry
		f.add(entry)
	}
	for name := range f.children {
		slices.SortFunc(f.children[name], func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		f.children[name] = slices.CompactFunc(f.children[name],
			func(a, b fs.DirEntry) bool { return a.Name() == b.Name() })
	}
	return f
}

// treeFS implements the io/fs interfaces for reading whole files and directories. Each read takes a single lookup.
type treeFS struct {
	entries  map[string]treeEntry
	children map[string][]fs.DirEntry
}

// treeEntry is a file, directory or symbolic link in a tree.
type treeEntry struct {
	name    string
	mode    fs.FileMode
	content string
	err     error
}

// add adds an entry and its parent directories. It does not replace existing entries.
func (f *treeFS) add(entry treeEntry) {
	if _, ok := f.entries[entry.name]; ok || !fs.ValidPath(entry.name) {
		return
	}
	f.entries[entry.name] = entry
	if entry.name == "." {
		return
	}
	dir := path.Dir(entry.name)
	f.children[dir] = append(f.children[dir], entry)
	// The recursion ends at "." or at an existing directory.
	f.add(treeEntry{name: dir, mode: fs.ModeDir | 0o555})
}

// find looks up the entry for a read operation.
func (f *treeFS) find(operation, name string) (treeEntry, error) {
	entry, ok := f.entries[name]
	switch {
	case !ok:
		return treeEntry{}, &fs.PathError{Op: operation, Path: name, Err: syscall.ENOENT}
	case entry.err != nil:
		return treeEntry{}, &fs.PathError{Op: operation, Path: name, Err: entry.err}
	}
	return entry, nil
}

// Open implements fs.FS.
func (f *treeFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	entry, err := f.find("open", name)
	if err != nil {
		return nil, err
	}
	return &treeFile{treeEntry: entry, reader: strings.NewReader(entry.content)}, nil
}

// ReadFile implements fs.ReadFileFS.
func (f *treeFS) ReadFile(name string) ([]byte, error) {
	entry, err := f.find("read", name)
	if err == nil && !entry.mode.IsRegular() {
		err = &fs.PathError{Op: "read", Path: name, Err: syscall.EINVAL}
	}
	return []byte(entry.content), err
}

// ReadDir implements fs.ReadDirFS.
func (f *treeFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entry, err := f.find("readdir", name)
	if err == nil && !entry.mode.IsDir() {
		err = &fs.PathError{Op: "readdir", Path: name, Err: syscall.ENOTDIR}
	}
	return slices.Clone(f.children[name]), err
}

// ReadLink implements fs.ReadLinkFS.
func (f *treeFS) ReadLink(name string) (string, error) {
	entry, err := f.find("readlink", name)
	if err == nil && entry.mode.Type() != fs.ModeSymlink {
		err = &fs.PathError{Op: "readlink", Path: name, Err: syscall.EINVAL}
	}
	return entry.content, err
}

// Lstat implements fs.ReadLinkFS.
func (f *treeFS) Lstat(name string) (fs.FileInfo, error) { return f.find("lstat", name) }

// The methods of fs.FileInfo and fs.DirEntry.

func (e treeEntry) Name() string               { return path.Base(e.name) }
func (e treeEntry) Size() int64                { return int64(len(e.content)) }
func (e treeEntry) Mode() fs.FileMode          { return e.mode }
func (e treeEntry) Type() fs.FileMode          { return e.mode.Type() }
func (e treeEntry) ModTime() time.Time         { return time.Time{} }
func (e treeEntry) IsDir() bool                { return e.mode.IsDir() }
func (e treeEntry) Sys() any                   { return nil }
func (e treeEntry) Info() (fs.FileInfo, error) { return e, nil }

// treeFile is an open entry in a tree.
type treeFile struct {
	treeEntry
	reader *strings.Reader
}

// Stat implements fs.File.
func (f *treeFile) Stat() (fs.FileInfo, error) { return f.treeEntry, nil }

// Read implements fs.File.
func (f *treeFile) Read(buffer []byte) (int, error) {
	if !f.mode.IsRegular() {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: syscall.EISDIR}
	}
	return f.reader.Read(buffer)
}

// Close implements fs.File.
func (f *treeFile) Close() error { return nil }

// errnoName returns the name of the errno value that an error wraps, or EIO if there is none.
func errnoName(err error) string {
	number := syscall.EIO
	errors.As(err, &number)
	return unix.ErrnoName(number)
}

// errnoOf is the inverse of errnoName.
func errnoOf(name string) syscall.Errno {
	const greatest = 200 // upper bound of the numbers in asm/errno.h, which start at 1, on all Linux architectures
	for number := range syscall.Errno(greatest) {
		if unix.ErrnoName(number) == name {
			return number
		}
	}
	return syscall.EIO
}

// recorder is a file system that records everything that is read from it. Several goroutines may read concurrently.
//
// Since a recording only contains the files that were read, it is small, but a newer driver that reads more files needs
// a new recording.
type recorder struct {
	fs.ReadLinkFS

	mu   sync.Mutex // guards tree
	tree Tree
}

func newRecorder(fsys fs.ReadLinkFS) *recorder {
	return &recorder{ReadLinkFS: fsys, tree: Tree{Links: map[string]string{}, Files: map[string]string{},
		Errors: map[string]string{}}}
}

// ReadFile implements fs.ReadFileFS.
func (r *recorder) ReadFile(name string) ([]byte, error) {
	content, err := fs.ReadFile(r.ReadLinkFS, name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed(name, err) {
		return nil, err
	}
	r.tree.Files[name] = strings.TrimSpace(string(content))
	return content, nil
}

// ReadLink implements fs.ReadLinkFS.
func (r *recorder) ReadLink(name string) (string, error) {
	target, err := r.ReadLinkFS.ReadLink(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed(name, err) {
		return "", err
	}
	r.tree.Links[name] = target
	return target, nil
}

// ReadDir implements fs.ReadDirFS. A directory's entries are not recorded until they are themselves read, so that a
// recording has no unused files. RDMA devices are an exception, since only their names are read.
func (r *recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(r.ReadLinkFS, name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed(name, err) {
		return nil, err
	}
	r.tree.Dirs = append(r.tree.Dirs, name)
	if path.Base(name) == rdmaDirectory {
		for _, entry := range entries {
			r.tree.Dirs = append(r.tree.Dirs, path.Join(name, entry.Name()))
		}
	}
	return entries, nil
}

// failed records an error, if any, and reports whether there was one. It does not record that a file is missing, since
// files that are not in the recording are missing anyway. The caller must hold the lock.
func (r *recorder) failed(name string, err error) bool {
	if err != nil && !isAbsent(err) {
		r.tree.Errors[name] = errnoName(err)
	}
	return err != nil
}

// pruned returns the tree, sorted and without PCI functions that are not network functions.
func (r *recorder) pruned() Tree {
	tree := Tree{Links: maps.Clone(r.tree.Links), Files: maps.Clone(r.tree.Files), Errors: r.tree.Errors}
	for name, target := range r.tree.Links {
		dir := path.Join(pciDevices, target)
		class, read := r.tree.Files[path.Join(dir, "class")]
		_, used := r.tree.Files[path.Join(dir, "vendor")]
		if path.Dir(name) == pciDevices && read && !used && !strings.HasPrefix(class, networkClass) {
			delete(tree.Links, name)
			delete(tree.Files, path.Join(dir, "class"))
		}
	}
	slices.Sort(r.tree.Dirs)
	tree.Dirs = slices.Compact(r.tree.Dirs)
	return tree
}
