package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// directory is a directory with small files that can be read completely with a single read, such as the files in sysfs:
// a show function in the kernel fills at most one page. Package os needs twice as many system calls, which take most of
// the time on machines with thousands of functions. The directory is opened once, so that all threads read the same
// one, even if the caller's thread has its own mounts.
type directory struct {
	fs.ReadLinkFS
	root *os.Root
	self *os.File
}

// openSysfs returns the sysfs that is mounted at the path. The caller must close it.
func openSysfs(mount string) (*directory, error) {
	root, err := os.OpenRoot(mount)
	if err != nil {
		return nil, fmt.Errorf("cannot open sysfs: %w", err)
	}
	self, err := root.Open(".")
	if err != nil {
		_ = root.Close() // nothing was written
		return nil, fmt.Errorf("cannot open sysfs: %w", err)
	}
	return &directory{root.FS().(fs.ReadLinkFS), root, self}, nil
}

// Close releases the directory.
func (d *directory) Close() {
	_ = d.self.Close() // nothing was written
	_ = d.root.Close()
}

// open opens a file or directory for reading, with additional flags as in open(2).
func (d *directory) open(name string, flags int) (int, error) {
	if !fs.ValidPath(name) {
		return 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, err := retried(func() (int, error) {
		return unix.Openat(int(d.self.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	})
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

// ReadFile implements fs.ReadFileFS.
func (d *directory) ReadFile(name string) ([]byte, error) {
	file, err := d.open(name, unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(file) }() // nothing was written
	buffer := make([]byte, 128)
	for filled := 0; ; {
		count, err := retried(func() (int, error) { return unix.Read(file, buffer[filled:]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		if filled += count; filled < len(buffer) {
			return buffer[:filled], nil
		}
		buffer = append(buffer, make([]byte, len(buffer))...)
	}
}

// ReadLink implements fs.ReadLinkFS.
func (d *directory) ReadLink(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	buffer := make([]byte, 256)
	for {
		count, err := retried(func() (int, error) { return unix.Readlinkat(int(d.self.Fd()), name, buffer) })
		if err != nil {
			return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
		}
		if count < len(buffer) {
			return string(buffer[:count]), nil
		}
		buffer = make([]byte, 2*len(buffer))
	}
}

// ReadDir implements fs.ReadDirFS.
func (d *directory) ReadDir(name string) ([]fs.DirEntry, error) {
	file, err := d.open(name, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	opened := os.NewFile(uintptr(file), name)
	defer func() { _ = opened.Close() }() // nothing was written
	entries, err := opened.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// retried repeats a system call as long as signals interrupt it; the Go runtime sends signals to its own threads.
func retried(call func() (int, error)) (int, error) {
	for {
		if result, err := call(); !errors.Is(err, unix.EINTR) {
			return result, err
		}
	}
}
