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

// stateDir is the directory for the records.
//
// The directory is on a tmpfs: records outlive the process but, like namespaces, do not survive a reboot, so fsync is
// not needed. The driver's pod mounts the host's /run/cni, so a plugin that runs as a process on the host finds the
// same records.
const stateDir = "/run/cni/netdev"

// record is the data needed to move a link back. It is written before the link is moved, and removed once the link is
// back.
//
// The file name consists of the runtime's container ID and the interface name, so that DEL finds the record that ADD
// wrote for the attachment. Unknown fields from a newer version are ignored, so that a downgraded driver can still undo
// the attachment.
type record struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
	// Netns is the path to the pod's namespace. NamespaceID identifies the namespace.
	Netns       string `json:"netns"`
	NamespaceID string `json:"namespaceID"`
	// Index is the link's index in the pod. It is chosen by the plugin, and no other record for the namespace has the
	// same index. It identifies the link even if an application renames the link or gives its name to another link.
	Index int `json:"index"`
	// Name and HostIndex are the name and index of the link on the host.
	Name      string `json:"name"`
	HostIndex int    `json:"hostIndex"`
	// Up reports whether the link was up on the host.
	Up bool `json:"up"`
	// Seen contains the link's properties as last observed. It is nil in records from older versions.
	Seen *seenLink `json:"seen,omitempty"`
	// AltNames are the alternative names that the link had on the host.
	AltNames []string `json:"altNames,omitempty"`
}

// seenLink contains the properties that distinguish a link from links created by an application, which can have any
// name, address and index.
type seenLink struct {
	Kind string `json:"kind"`
	// ParentDev is the bus address of the link's hardware (IFLA_PARENT_DEV_NAME).
	ParentDev string `json:"parentDev,omitempty"`
	// Parent is the index of the lower link, or of a veth's peer (IFLA_LINK), or 0 if there is none. Namespace is the
	// ID that the parent's namespace has in the pod's namespace (IFLA_LINK_NETNSID), or -1 for the pod's own namespace
	// and on the host.
	Parent    int `json:"parent,omitempty"`
	Namespace int `json:"namespace"`
}

func seen(link netlink.Link) seenLink {
	attrs := link.Attrs()
	found := seenLink{Kind: link.Type(), ParentDev: attrs.ParentDev, Parent: attrs.ParentIndex, Namespace: -1}
	if found.Parent == attrs.Index { // a tunnel in another namespace has no lower link and reports its own index
		found.Parent = 0
	}
	if found.Parent != 0 {
		found.Namespace = attrs.NetNsID
	}
	return found
}

// isLink reports whether a link in the pod that has the record's index is the link that was moved there.
//
// The location of the lower link may have changed since the link was last observed. On the host, the lower link is
// usually in the same namespace as the link; this is the last observation if ADD was killed before the link was
// observed in the pod. The lower link may also have been moved to another pod in the meantime. An application cannot
// bring about either case, so in both cases the link is ours if there is no longer a link with the lower link's index
// on the host. Pairs are different, because an application can delete a link in a pair together with its peer. For a
// pair, a record must therefore confirm that the peer was moved.
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

// peerMoved reports whether the peer of a paired link was also moved to a pod and has the given index there.
func (r *record) peerMoved(index int) (bool, error) {
	records, err := readRecords()
	moved := slices.ContainsFunc(records, func(other *record) bool {
		return other.path() != r.path() && other.HostIndex == r.Seen.Parent && other.Index == index
	})
	return moved, err
}

func (r *record) path() string { return recordPath(r.ContainerID, r.IfName) }

// incomplete returns the path to the record that is being written. There is only one such file, because writing
// requires the lock. A killed process may leave the file behind; the next writer overwrites it, and readers never read
// it.
func incomplete() string { return filepath.Join(stateDir, "incomplete") }

// recordPath returns the path to a record. The path is inside the directory for any input.
func recordPath(containerID, ifName string) string {
	return filepath.Join(stateDir, filepath.Base(containerID)+"_"+filepath.Base(ifName)+".json")
}

// write writes the record atomically. The caller must hold the lock, because all writers use the same incomplete file.
// A reader that does not hold the lock sees either the old or the new record (rename(2)).
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
		return fmt.Errorf("cannot write the record of link %q: %w", r.Name, err)
	}
	return nil
}

func (r *record) remove() error {
	if err := os.Remove(r.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the record of link %q: %w", r.Name, err)
	}
	return nil
}

// readRecord reads a record. It returns nil if the file does not exist.
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

// lockInterval is the time between attempts to acquire the lock while another process holds it.
const lockInterval = time.Millisecond

// lock prevents other processes from moving links. It waits for the lock until ctx is done. The lock is released by
// unlock, or when this process exits. lock uses flock(2) on a file that is never removed; otherwise, two processes
// could lock two different files with the same name. The lock belongs to the open file, so it also excludes other
// goroutines in this process. unlock closes the file.
func lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(stateDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	mode := unix.LOCK_EX
	if ctx.Done() != nil { // a thread blocked in the kernel could not be interrupted
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

// readRecords returns all readable records, and an error for any others. newRecord fails if there is an error, because
// an unreadable record may reserve the index that newRecord would choose.
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
