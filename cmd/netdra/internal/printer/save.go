package printer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
)

// Save writes a result that is not for terminals to a file, or to the standard output if path is empty.
func Save(streams Streams, path string, data []byte) error {
	if path == "" {
		if IsTerminal(streams.Out) {
			return ErrTerminal()
		}
		_, err := streams.Out.Write(data)
		return err
	}
	if err := replaceFile(path, data); err != nil {
		return fmt.Errorf("cannot write %s: %w; name another file with --file, or redirect the output", path,
			exit.Cause(err))
	}
	New(streams.Err).Good("written to %s, %d KB", path, (len(data)+1023)/1024)
	return nil
}

// ErrTerminal returns the error for a result that a terminal cannot show.
func ErrTerminal() error {
	return errors.New("cannot show the result in a terminal; name a file with --file")
}

// replaceFile replaces a file atomically. The file has mode 0600, since it contains the names of pods and claims. It
// does not replace special files, because root could replace /dev/null. The name of the temporary file is random, so
// other users of the directory cannot create it first.
func replaceFile(path string, data []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return errors.New("it exists and is not a regular file")
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
