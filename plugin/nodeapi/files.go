package nodeapi

import (
	"errors"
	"os"
	"path/filepath"
)

// TempPrefix is the prefix for the names of the driver's incomplete files. The names end in .tmp, and programs that
// read these directories ignore such names.
const TempPrefix = "." + driverName + "-"

// IgnoreMissing returns nil if err means that a file does not exist; otherwise, it returns err unchanged.
func IgnoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// WriteFile replaces a file atomically. If it fails, it leaves no other files behind. It does not sync the directory,
// because it is intended for files whose content is valid only during the current boot.
func WriteFile(path string, data []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), TempPrefix+"*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
