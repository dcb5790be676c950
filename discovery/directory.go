package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// directory is a directory whose files are small enough to be read in one call, like those in sysfs: a show function in
// the kernel fills at most one page. Package os makes twice as many system calls per file, and on machines with
// thousands of functions, most of the time is spent in these calls. The directory is opened once, so that all threads
// read from the same one even if the caller's thread has its own mounts.
type directory struct {
	fs.ReadLinkFS // for everything but the content of files
	self          *os.File
}

// openSysfs returns the sysfs that is mounted at the path. The caller must close it.
func openSysfs(mount string) (*directory, error) {
	self, err := os.Open(mount)
	if err != nil {
		return nil, fmt.Errorf("cannot open sysfs: %w", err)
	}
	return &directory{os.DirFS(fmt.Sprintf("/proc/self/fd/%d", self.Fd())).(fs.ReadLinkFS), self}, nil
}

// Close releases the directory.
func (d *directory) Close() { _ = d.self.Close() } // nothing was written

// ReadFile implements fs.ReadFileFS.
func (d *directory) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, err := retried(func() (int, error) {
		return unix.Openat(int(d.self.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
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

// retried repeats a system call until it is not interrupted by a signal; the Go runtime sends signals to its own
// threads.
func retried(call func() (int, error)) (int, error) {
	for {
		if result, err := call(); !errors.Is(err, unix.EINTR) {
			return result, err
		}
	}
}
