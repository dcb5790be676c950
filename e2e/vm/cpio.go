package vm

import (
	"fmt"
	"io"
	"io/fs"
)

// cpioWriter writes an archive in "newc" format, which the kernel accepts as its initial file system. Names are
// relative to the root, and directories must be added before their contents. See
// Documentation/driver-api/early-userspace/buffer-format.rst in the kernel source. cpioWriter does not need the cpio
// program, and always produces the same bytes for the same content. After the first error, it stops writing; finish
// returns this error.
type cpioWriter struct {
	output io.Writer
	ino    int
	err    error
}

const (
	cpioFolder = 0o040000
	cpioFile   = 0o100000
)

// folder adds a directory.
func (w *cpioWriter) folder(name string) { w.entry(name, cpioFolder|0o755, nil) }

// file adds a file.
func (w *cpioWriter) file(name string, mode fs.FileMode, data []byte) {
	w.entry(name, cpioFile|int(mode.Perm()), data)
}

// finish completes the archive and returns the first error.
func (w *cpioWriter) finish() error {
	w.entry("TRAILER!!!", 0, nil)
	return w.err
}

// entry writes the header (13 hexadecimal numbers), the name and the data. The name and the data are padded to four
// bytes. The numbers are: inode, mode, owner, group, number of links, time, size, device of the file (two numbers),
// device number of a special file (two numbers), length of the name including its terminating zero byte, and a
// checksum, which this format does not use.
func (w *cpioWriter) entry(name string, mode int, data []byte) {
	w.ino++
	header := "070701"
	for _, number := range []int{w.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0} {
		header += fmt.Sprintf("%08X", number)
	}
	header += name + "\x00"
	w.write([]byte(header))
	w.write(make([]byte, -len(header)&3))
	w.write(data)
	w.write(make([]byte, -len(data)&3))
}

func (w *cpioWriter) write(data []byte) {
	if w.err == nil {
		_, w.err = w.output.Write(data)
	}
}
