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
	longestID         = 32 // of the sandbox: enough to find it by
	shortestMoment    = 8  // digits
)

// PinName returns the name of the pin of one attempt to attach a sandbox, which began at a time. The next attempt has
// another name: state that a plugin keys by the path of a namespace and did not delete, as sriov does for functions
// (pkg/utils/pci_allocator.go), then belongs to a namespace that no longer exists.
func PinName(sandboxID string, begun time.Time) string {
	return pinPrefix + sandboxID[:min(len(sandboxID), longestID)] + "." + strconv.FormatInt(begun.UnixNano(), 36)
}

// PlaceholderPath is where the placeholder of a pinned namespace is: one for a sandbox, since its steps are undone one
// after the other. A crash may leave it; the next placeholder replaces it, and it goes with the pin.
func PlaceholderPath(pin string) string { return pin + placeholderSuffix }

// ReturnPath is where the namespace is into which the devices of a pinned namespace are moved before they are cleaned.
// It goes with the pin, unless a device is in it.
func ReturnPath(pin string) string { return pin + returnSuffix }

// PinOf returns the name of the pin that a file belongs to: itself, or what PlaceholderPath or ReturnPath was made
// from.
func PinOf(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, placeholderSuffix), returnSuffix)
}

// IsPinName reports whether a file name was created by PinName, or belongs to a placeholder. Other components may have
// namespaces with the same prefix.
func IsPinName(name string) bool {
	name, ours := strings.CutPrefix(PinOf(name), pinPrefix)
	dot := strings.LastIndex(name, ".")
	if !ours || dot <= 0 || len(name)-dot-1 < shortestMoment {
		return false
	}
	_, err := strconv.ParseInt(name[dot+1:], 36, 64)
	return err == nil
}

// IsPinOf reports whether a file is the pin at a path, or replaces it during a rollback.
func IsPinOf(file, pin string) bool {
	return PinOf(filepath.Base(file)) == filepath.Base(pin)
}
