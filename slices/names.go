package slices

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// maxLabel is the maximum length of a DNS label.
const maxLabel = 63

// label converts name to a DNS label. A valid label is returned unchanged. Otherwise, invalid characters are replaced
// and a hash of the whole name is appended, so that different names yield different labels.
func label(name string) string {
	mapped := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '-':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	mapped = strings.Trim(mapped, "-")
	if mapped == name && len(name) <= maxLabel && name != "" {
		return name
	}
	hash := fmt.Sprintf("x%x", sha256.Sum256([]byte(name)))[:9]
	if mapped == "" {
		return hash
	}
	mapped = strings.TrimRight(mapped[:min(len(mapped), maxLabel-len(hash)-1)], "-")
	return mapped + "-" + hash
}
