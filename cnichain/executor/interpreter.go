package executor

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// MissingInterpreter returns the program interpreter of a dynamically linked program if the interpreter does not exist
// in this process's root directory. It returns "" for all other files. In a container without a C library, the kernel
// only reports ENOENT for such a program, as if the program itself did not exist (execve(2)).
func MissingInterpreter(path string) string {
	file, err := elf.Open(path)
	if err != nil { // for example a script
		return ""
	}
	defer func() { _ = file.Close() }() // only read
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(io.LimitReader(segment.Open(), unix.PathMax))
		if err != nil {
			return ""
		}
		interpreter := unix.ByteSliceToString(name)
		if _, err := os.Stat(interpreter); errors.Is(err, os.ErrNotExist) {
			return interpreter
		}
	}
	return ""
}

// explainStart adds the cause to the error of a program that could not be started because of its interpreter.
func explainStart(path string, failure error) error {
	interpreter := MissingInterpreter(path)
	if interpreter == "" {
		return failure
	}
	return fmt.Errorf("%w: it is dynamically linked, and the driver's container does not contain %s; install a "+
		"statically linked plugin, or use the driver's image with a C library (driver-with-tools)", failure, interpreter)
}
