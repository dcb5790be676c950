package cnichain

import (
	"slices"
	"strings"
)

// plugins returns binaries that support all CNI versions.
func plugins(names ...string) map[string]Plugin {
	found := map[string]Plugin{}
	for _, name := range names {
		found[name] = Plugin{Path: "/opt/cni/bin/" + name, Versions: []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}}
	}
	return found
}

func contains(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}
