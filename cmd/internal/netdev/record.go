package netdev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery/linkkind"
)

// stateDir is emptied at boot, as namespaces are.
//
// It is on a tmpfs, so records survive a process and not a boot, and need no fsync. The driver's pod mounts /run/cni of
// the host: a plugin that runs as a process on the host finds the same records.
const stateDir = "/run/cni/netdev"

// record is what brings a link back. It is written before the link moves, and removed when it is back.
//
// The name of its file is the attachment: the runtime's ID of the container and the name of the interface, which
// identify an ADD for the DEL that comes later. Unknown fields of a newer version are ignored, so that a downgraded
// driver can still undo.
type record struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
	// Netns is the path of the pod's namespace, and NamespaceID what it is.
	Netns       string `json:"netns"`
	NamespaceID string `json:"namespaceID"`
	// Index is that of the link in the pod, which the plugin has chosen, and no other record of the namespace has:
	// whatever the link is called, and whatever has its name.
	Index int `json:"index"`
	// Name and HostIndex are those of the link on the host.
	Name      string `json:"name"`
	HostIndex int    `json:"hostIndex"`
	// Up reports whether the link was up.
	Up bool `json:"up"`
	// Seen is the link as it was seen last; nil in records of versions that did not note it.
	Seen *seenLink `json:"seen,omitempty"`
	// AltNames are the alternative names that the link had on the host.
	AltNames []string `json:"altNames,omitempty"`
}

// seenLink is of a link what tells it from others that an application makes: it can give these any name, address and
// index.
type seenLink struct {
	Kind string `json:"kind"`
	// ParentDev is the bus address of hardware (IFLA_PARENT_DEV_NAME).
	ParentDev string `json:"parentDev,omitempty"`
	// Parent is the index of the link below, or of a veth's peer (IFLA_LINK); 0 without one. Namespace is that of the
	// parent, by the number that the pod's namespace has for it (IFLA_LINK_NETNSID); -1 for the pod's own, and on the
	// host.
	Parent    int `json:"parent,omitempty"`
	Namespace int `json:"namespace"`
}

func seen(link netlink.Link) seenLink {
	attrs := link.Attrs()
	found := seenLink{Kind: link.Type(), ParentDev: attrs.ParentDev, Parent: attrs.ParentIndex, Namespace: -1}
	if found.Parent == attrs.Index { // tunnels stand on none, and name themselves in another namespace than their own
		found.Parent = 0
	}
	if found.Parent != 0 {
		found.Namespace = attrs.NetNsID
	}
	return found
}

// isLink reports whether a link in the pod that has the index of the record is the one that was moved there.
//
// What it stands on may have another place than when the link was seen last: on the host it is usually in the same
// namespace, which counts if nothing was seen in the pod, since ADD was killed; and another pod may have got it
// meanwhile. An application changes nothing of that, so then the link is taken for ours if the host has no link of that
// index any more. With one of a pair it can: the other one goes with it. Of that a record must say where it is.
func (r *record) isLink(link netlink.Link, host *namespace) (bool, error) {
	if r.Seen == nil {
		return true, nil
	}
	now := seen(link)
	if now.Kind != r.Seen.Kind || now.ParentDev != r.Seen.ParentDev {
		return false, nil
	}
	samePlace := now.Parent == 0 || now.Namespace == r.Seen.Namespace || r.Seen.Namespace < 0
	switch {
	case now.Parent == r.Seen.Parent && samePlace:
		return true, nil
	case r.Seen.Parent == 0:
		return false, nil
	case linkkind.IsPair(now.Kind):
		return r.peerMoved(now.Parent)
	}
	stays, err := host.has(r.Seen.Parent)
	return !stays && err == nil, err
}

// peerMoved reports whether the other one of a pair was given to a pod, too, in which it has an index.
func (r *record) peerMoved(index int) (bool, error) {
	records, err := readRecords()
	moved := slices.ContainsFunc(records, func(other *record) bool {
		return other.path() != r.path() && other.HostIndex == r.Seen.Parent && other.Index == index
	})
	return moved, err
}

func (r *record) path() string { return recordPath(r.ContainerID, r.IfName) }

// incomplete is a record that is being written, of which there is one at a time: whoever writes has the lock. A process
// that was killed may leave it.
func incomplete() string { return filepath.Join(stateDir, "incomplete") }

// recordPath keeps both parts inside of the directory, whatever a runtime passes on.
func recordPath(containerID, ifName string) string {
	return filepath.Join(stateDir, filepath.Base(containerID)+"_"+filepath.Base(ifName)+".json")
}

// write makes the file appear whole. Whoever calls it has the lock: all writers use one incomplete file. A reader
// without the lock sees the old record or the new one (rename(2)).
func (r *record) write() error {
	data, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(stateDir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(incomplete(), data, 0o600)
	}
	if err == nil {
		err = os.Rename(incomplete(), r.path())
	}
	if err != nil {
		return fmt.Errorf("cannot write down where link %q is: %w", r.Name, err)
	}
	return nil
}

func (r *record) remove() error {
	if err := os.Remove(r.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the record of link %q: %w", r.Name, err)
	}
	return nil
}

// removeIncomplete removes what an ADD has left that was killed while it wrote its record: nothing was moved then.
func removeIncomplete(ctx context.Context) error {
	if _, err := os.Lstat(incomplete()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Remove(incomplete()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove an incomplete record: %w", err)
	}
	return nil
}

// readRecord returns nil if there is none.
func readRecord(path string) (*record, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := &record{}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read record %s: %w", path, err)
	}
	return r, nil
}

// lockInterval is after what time a lock that another process has is tried again.
const lockInterval = time.Millisecond

// lock keeps others from moving links; it ends with this process at the latest. It waits no longer than ctx. The lock
// is flock(2) on a file that is never removed: if it were, two processes could lock two files of one name. It belongs
// to the open file, so goroutines of one process exclude each other, too. unlock closes the file.
func lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(stateDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	mode := unix.LOCK_EX
	if ctx.Done() != nil { // a thread that waits in the kernel could not be told
		mode |= unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(file.Fd()), mode) //nolint:gosec // a descriptor
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			select {
			case <-time.After(lockInterval):
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		_ = file.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", file.Name(), err)
	}
}

// readRecords returns all. A record that cannot be read is in the error, and the others are returned with it. newRecord
// refuses to go on then: the index that it would choose may be reserved by what it could not read.
func readRecords() ([]*record, error) {
	entries, err := os.ReadDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	problems := []error{err}
	var records []*record
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".json") {
			continue
		}
		r, err := readRecord(filepath.Join(stateDir, entry.Name()))
		problems = append(problems, err)
		if r != nil {
			records = append(records, r)
		}
	}
	return records, errors.Join(problems...)
}
