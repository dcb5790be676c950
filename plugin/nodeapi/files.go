package nodeapi

import (
	"errors"
	"os"
	"path/filepath"
)

// TempPrefix is what the names of the driver's files begin with that are not complete yet; they end in .tmp, and those
// who read these directories read other names only.
const TempPrefix = "." + driverName + "-"

// WriteFile replaces a file at once and leaves nothing beside it when it fails. The directory is not synced: it is for
// files that are lost with the boot, as is what they say.
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
