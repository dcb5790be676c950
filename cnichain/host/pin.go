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

// PinName names the pin of one attempt to attach a sandbox, which began at a time. The next attempt has another: what a
// plugin keeps by the path of a namespace, as sriov does of functions (pkg/utils/pci_allocator.go), and was not told to
// let go of, is then of a namespace that is gone.
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

// IsPinName says whether a file's name is one that PinName has made, or that of a placeholder. Others may have
// namespaces whose names begin like ours.
func IsPinName(name string) bool {
	name, ours := strings.CutPrefix(PinOf(name), pinPrefix)
	dot := strings.LastIndex(name, ".")
	if !ours || dot <= 0 || len(name)-dot-1 < shortestMoment {
		return false
	}
	_, err := strconv.ParseInt(name[dot+1:], 36, 64)
	return err == nil
}

// IsPinOf says whether a file is the pin at a path, or stands in for it while something is undone.
func IsPinOf(file, pin string) bool {
	return PinOf(filepath.Base(file)) == filepath.Base(pin)
}
