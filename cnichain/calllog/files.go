package calllog

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

const (
	// maxSandboxes is the number of sandboxes that a claim's log keeps for each pod: a pod that cannot be attached gets
	// another sandbox for each attempt.
	maxSandboxes = 16
	// maxFileName is the maximum length of a file name.
	maxFileName = 255
	// cutMark separates the beginning of a long name from its hash. It is not allowed in Kubernetes names.
	cutMark = "~"
	// suffix is the suffix of file names; rotated files have an additional suffix.
	suffix = ".jsonl"
)

// folderName returns the name of a claim's directory. It contains the complete UID, since Sweep needs it.
func folderName(claim cnichain.Claim) string {
	return folderPrefix(claim.Namespace, claim.Name) + claim.UID
}

// folderPrefix returns the prefix that the directories of all claims with a given name share. If the name is too long
// for a file name, it is truncated, and a hash of the complete name is added. A namespace has at most 63 characters
// (RFC 1123 label), so there is always space for a part of the name.
func folderPrefix(namespace, name string) string {
	const uid = 36
	room := maxFileName - len(namespace) - len("__") - uid
	if len(name) > room {
		sum := sha256.Sum256([]byte(name))
		mark := cutMark + hex.EncodeToString(sum[:8])
		name = name[:max(0, room-len(mark))] + mark
	}
	return namespace + "_" + name + "_"
}

// sandbox contains the files of one sandbox in a claim's directory.
type sandbox struct {
	pod   string
	files []string
	last  time.Time // time of the last write
}

// readSandboxes returns the sandboxes in a claim's directory, sorted by their last write, newest first.
func readSandboxes(dir string) ([]*sandbox, error) {
	entries, err := os.ReadDir(dir)
	byID := map[string]*sandbox{}
	var all []*sandbox
	for _, entry := range entries {
		id, _, isLog := strings.Cut(entry.Name(), suffix)
		info, infoErr := entry.Info()
		if !isLog || infoErr != nil { // if infoErr is set, the file was deleted meanwhile
			continue
		}
		box := byID[id]
		if box == nil {
			box = &sandbox{}
			byID[id] = box
			all = append(all, box)
		}
		path := filepath.Join(dir, entry.Name())
		box.files = append(box.files, path)
		if info.ModTime().After(box.last) {
			box.last = info.ModTime()
		}
		if box.pod == "" {
			box.pod = firstCall(path).Pod
		}
	}
	slices.SortStableFunc(all, func(a, b *sandbox) int { return b.last.Compare(a.last) })
	return all, err
}

// firstCall returns the first call in a file, or an empty call if the file cannot be read.
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

// removeSandboxes removes the files of all sandboxes for which remove returns true. younger is the number of newer
// sandboxes of the same pod.
func removeSandboxes(dir string, remove func(box *sandbox, younger int) bool) error {
	boxes, err := readSandboxes(dir)
	younger := map[string]int{}
	for _, box := range boxes {
		if remove(box, younger[box.pod]) {
			for _, file := range box.files {
				if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
					return err
				}
			}
			continue
		}
		younger[box.pod]++
	}
	return err
}
