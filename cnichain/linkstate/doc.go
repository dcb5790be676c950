// Package linkstate reads everything that the kernel reports about a link, compares two such states, and reverts the
// differences.
//
// The driver reads a device's state before the device is attached to a pod and after it has been returned. The
// comparison does not rely on a list of possible changes: it covers every attribute, including those added by future
// kernels, except for the ones documented in exceptions.go. If a difference cannot be reverted, the device stays in
// quarantine.
//
// Invariant: it does not depend on link kinds or on the meaning of settings, except for attributes that
// the kernel reports in one form and accepts in another.
//
// The sources are rtnetlink (RTM_GETLINK), ethtool netlink, sysfs, DCB, NAPI settings, receive rules and BPF programs
// attached without a queueing discipline (tcx). All functions operate in the calling thread's network namespace.
package linkstate

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// State contains a link's attributes by key, such as "link.linkmode" or "ethtool.rings.6". The values are raw kernel
// data: netlink attributes including their headers, or file contents.
type State map[string][]byte

// Differences describes each attribute that differs from the earlier state, sorted by key.
func (s State) Differences(earlier State) []string {
	var differences []string
	for _, key := range s.differing(earlier) {
		differences = append(differences, fmt.Sprintf("%s is %s, was %s", key, show(s[key]), show(earlier[key])))
	}
	return differences
}

// differing returns the sorted keys of the attributes that differ from the earlier state.
func (s State) differing(earlier State) []string {
	keys := map[string]bool{}
	for key := range s {
		keys[key] = true
	}
	for key := range earlier {
		keys[key] = true
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(keys)),
		func(key string) bool {
			return bytes.Equal(s[key], earlier[key]) || key == carrierAttribute ||
				isSpeed(key) && (s[key] == nil || earlier[key] == nil)
		})
}

// show formats a value for messages: file contents as text, and netlink attributes as hexadecimal digits without the
// header.
func show(value []byte) string {
	switch {
	case value == nil:
		return "absent"
	case isText(value):
		return fmt.Sprintf("%q", value)
	}
	text := hex.EncodeToString(value[min(len(value), headerLength):])
	if len(text) > 64 {
		text = text[:64] + "…"
	}
	return "0x" + text
}

func isText(value []byte) bool {
	return !strings.ContainsFunc(string(value), func(r rune) bool { return r < ' ' || r > '~' })
}
