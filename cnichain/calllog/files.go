package calllog

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

const (
	// maxSandboxes is the maximum number of sandboxes kept in a claim's log. A pod that cannot be attached gets a new
	// sandbox for each attempt.
	maxSandboxes = 32
	// maxFileName is the maximum length of a file name.
	maxFileName = 255
	// suffix is the file name suffix; rotated files have an additional suffix.
	suffix = ".jsonl"
)

// folderName returns the name of a claim's directory. It contains the complete UID, since Sweep needs it.
func folderName(claim cnichain.Claim) string {
	return folderPrefix(claim.Namespace, claim.Name) + claim.UID
}

// folderPrefix returns the prefix shared by the directories of all claims with a given name. If the name is too long
// for a file name, it is truncated; the lines in the files contain the full name. A namespace has at most 63 characters
// (RFC 1123 label), so there is always room for part of the name.
func folderPrefix(namespace, name string) string {
	const uid = 36
	room := maxFileName - len(namespace) - len("__") - uid
	return namespace + "_" + name[:min(len(name), max(0, room))] + "_"
}

// removeSandboxes removes the files of all but the newest sandboxes in a claim's directory.
func removeSandboxes(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	last := map[string]time.Time{} // time of the most recent write, by sandbox
	for _, entry := range entries {
		id, _, isLog := strings.Cut(entry.Name(), suffix)
		if info, err := entry.Info(); isLog && err == nil && !info.ModTime().Before(last[id]) {
			last[id] = info.ModTime()
		}
	}
	newest := slices.SortedFunc(maps.Keys(last), func(a, b string) int { return last[b].Compare(last[a]) })
	for _, id := range newest[min(len(newest), maxSandboxes):] {
		for _, name := range []string{id + suffix, id + suffix + ".1"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}

// firstCall returns the first call in a file. It returns an empty call if the file cannot be read.
func firstCall(path string) (call Call) {
	file, err := os.Open(path) //nolint:gosec // a file of the log
	if err != nil {
		return call
	}
	defer func() { _ = file.Close() }() // opened only for reading
	line, err := bufio.NewReader(file).ReadBytes('\n')
	if err == nil {
		_ = json.Unmarshal(line, &call) // a crash may have truncated the line
	}
	return call
}
