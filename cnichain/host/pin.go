package host

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	pinPrefix         = "dra-"
	placeholderSuffix = ".standin"
	returnSuffix      = ".return"
	longestID         = 32 // characters of the sandbox ID; enough to identify it
	shortestMoment    = 8  // digits
)

// PinName returns the name of the pin for one attempt to attach a sandbox, given the start time of the attempt. Each
// attempt uses a new name, because some plugins store state under a namespace's path and never delete it, as the sriov
// plugin does for virtual functions (pkg/utils/pci_allocator.go). With a new name, the old state refers to a namespace
// that no longer exists.
func PinName(sandboxID string, begun time.Time) string {
	return pinPrefix + sandboxID[:min(len(sandboxID), longestID)] + "." + strconv.FormatInt(begun.UnixNano(), 36)
}

// PlaceholderPath returns the path of the placeholder for a pinned namespace. A sandbox has only one placeholder at a
// time, since its steps are rolled back sequentially. A placeholder left behind by a crash is replaced by the next one,
// or removed together with the pin.
func PlaceholderPath(pin string) string { return pin + placeholderSuffix }

// ReturnPath returns the path of the return namespace for a pinned namespace: devices are moved there before they are
// cleaned up. The return namespace is removed together with the pin, unless it still contains a device.
func ReturnPath(pin string) string { return pin + returnSuffix }

// PinOf returns the name of the pin that a file belongs to: the file itself, or the pin that was passed to
// PlaceholderPath or ReturnPath.
func PinOf(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, placeholderSuffix), returnSuffix)
}

// IsPinName reports whether a file name was created by PinName, PlaceholderPath or ReturnPath. It checks more than just
// the prefix, because other components may use the same prefix for their own namespaces.
func IsPinName(name string) bool {
	name, ours := strings.CutPrefix(PinOf(name), pinPrefix)
	dot := strings.LastIndex(name, ".")
	if !ours || dot <= 0 || len(name)-dot-1 < shortestMoment {
		return false
	}
	_, err := strconv.ParseInt(name[dot+1:], 36, 64)
	return err == nil
}

// IsPinOf reports whether a file is the pin at a path, or its placeholder or return namespace.
func IsPinOf(file, pin string) bool {
	return PinOf(filepath.Base(file)) == filepath.Base(pin)
}
