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
	// maxSandboxes is how many sandboxes of a pod the log of a claim keeps: a pod that can't be attached has
	// another with each attempt.
	maxSandboxes = 16
	// maxFileName is what file systems take.
	maxFileName = 255
	// cutMark stands between the beginning of a long name and its hash. No name of Kubernetes has it.
	cutMark = "~"
	// suffix ends the names of files; rotated files have a further suffix.
	suffix = ".jsonl"
)

// folderName is the name of a claim's folder. The UID is whole: Sweep is asked about it.
func folderName(claim cnichain.Claim) string {
	return folderPrefix(claim.Namespace, claim.Name) + claim.UID
}

// folderPrefix begins the folders of claims of a name. One that would be too long for a file's name is cut, and has a
// hash of the whole. A namespace has at most 63 characters (RFC 1123 label), so there is always room for a part of the
// name.
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

// sandbox are the files of one sandbox in a claim's folder.
type sandbox struct {
	pod   string
	files []string
	last  time.Time // written to
}

// readSandboxes returns the sandboxes of a claim's directory, the latest writes first.
func readSandboxes(dir string) ([]*sandbox, error) {
	entries, err := os.ReadDir(dir)
	byID := map[string]*sandbox{}
	var all []*sandbox
	for _, entry := range entries {
		id, _, isLog := strings.Cut(entry.Name(), suffix)
		info, infoErr := entry.Info()
		if !isLog || infoErr != nil { // gone meanwhile
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

// firstCall is the first call in a file; empty if it can't be read.
func firstCall(path string) (call Call) {
	file, err := os.Open(path) //nolint:gosec // a file of the log
	if err != nil {
		return call
	}
	defer func() { _ = file.Close() }() // only read
	line, err := bufio.NewReader(file).ReadBytes('\n')
	if err == nil {
		_ = json.Unmarshal(line, &call) // a crash may have cut the line off
	}
	return call
}

// removeSandboxes removes the files of sandboxes for which remove is true, given how many younger ones of the same pod
// there are.
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
