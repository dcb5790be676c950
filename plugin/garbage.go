package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Kinds of garbage.
const (
	// garbageGate is the CDI spec that lets containers of a claim start.
	garbageGate = "CDI spec"
	// garbageMetadata is a CDI spec by which containers are told of their devices.
	garbageMetadata = "CDI spec of metadata"
	// garbageNamespace is the pin of a network namespace.
	garbageNamespace = "network namespace"
	// garbageLog is the CNI log of a claim.
	garbageLog = "CNI log"
)

// garbage is something on the node that nobody has any more. There is none, but after crashes and faults: what claims and
// sandboxes have goes with them.
type garbage struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
	// Claim is the UID of the claim that had it.
	Claim string `json:"claim,omitempty"`
	// Error is why it could not be removed.
	Error string `json:"error,omitempty"`
}

// garbage lists what is left. It reads directories first and then asks who has what: what is made meanwhile is not in the list,
// and what is in the list and has an owner has had it before.
func (d *Driver) garbage() ([]garbage, error) {
	found, err := d.garbageSpecs()
	problems := []error{err}
	pins, err := os.ReadDir(d.config.NetNSDir)
	problems = append(problems, missingIsEmpty(err))
	logs, err := d.callLog.Old(time.Now().Add(-d.config.LogRetention), d.isPrepared)
	problems = append(problems, err)
	for _, entry := range pins {
		// In this order: what a sandbox can't undo is kept before the sandbox is forgotten.
		if host.IsPinName(entry.Name()) && !d.sandboxes.hasPin(entry.Name()) && !d.keepsPin(entry.Name()) && !d.sandboxes.isOrphanPin(entry.Name()) {
			found = append(found, garbage{Kind: garbageNamespace, Path: filepath.Join(d.config.NetNSDir, entry.Name())})
		}
	}
	for _, path := range logs {
		found = append(found, garbage{Kind: garbageLog, Path: path})
	}
	return slices.DeleteFunc(found, isGone), errors.Join(problems...)
}

// garbageSpecs lists the CDI specs of claims that are not prepared.
func (d *Driver) garbageSpecs() ([]garbage, error) {
	entries, err := os.ReadDir(d.config.CDIDir)
	found := []garbage{}
	for _, entry := range entries {
		kind, uid := specOf(entry.Name())
		needed := d.isPrepared(uid) || d.sandboxes.isOrphan(uid) || kind == garbageMetadata && d.isAmnesic()
		if kind != "" && !needed {
			found = append(found, garbage{Kind: kind, Path: filepath.Join(d.config.CDIDir, entry.Name()), Claim: uid})
		}
	}
	return found, missingIsEmpty(err)
}

// isGone says whether its owner has removed it since it was listed.
func isGone(file garbage) bool {
	_, err := os.Lstat(file.Path)
	return errors.Is(err, os.ErrNotExist)
}

func missingIsEmpty(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// specOf says of a file with a CDI spec whether it is the driver's, and which claim it is for.
func specOf(name string) (kind, claimUID string) {
	name, isSpec := strings.CutSuffix(strings.TrimSuffix(name, suspended), ".json")
	if uid, found := strings.CutPrefix(name, v1alpha1.DriverName+"-"); found && isSpec {
		return garbageGate, uid
	}
	if rest, found := strings.CutPrefix(name, v1alpha1.DriverName+"_metadata_"); found && isSpec {
		uid, _, _ := strings.Cut(rest, "_")
		return garbageMetadata, uid
	}
	return "", ""
}

func (d *Driver) isPrepared(claimUID string) bool {
	_, prepared := d.claims.get(claimUID)
	return prepared
}

// isAmnesic says whether a journal was lost: then pods may run whose claims are not known, and containers of theirs are started
// with metadata.
func (d *Driver) isAmnesic() bool {
	lost, err := filepath.Glob(filepath.Join(d.config.PluginDir, "journal.db.unreadable-*"))
	return err != nil || len(lost) > 0
}

// keepsPin says whether a pin is of something that could not be undone: it is needed to try again.
func (d *Driver) keepsPin(name string) bool {
	for _, leftover := range d.dra.executor.Leftovers() {
		if host.IsPinOf(name, leftover.Attachment.Pin) {
			return true
		}
	}
	return false
}

// removeGarbage removes what is left, each thing under the lock of whoever could need it at this moment, and returns it with
// what could not be removed.
func (d *Driver) removeGarbage(ctx context.Context) ([]garbage, error) {
	found, err := d.garbage()
	for i := range found {
		file := &found[i]
		if err := d.discard(ctx, file); err != nil {
			file.Error = err.Error()
			continue
		}
		klog.FromContext(ctx).Info("Removed an orphan", "kind", file.Kind, "path", file.Path)
	}
	return found, err
}

func (d *Driver) discard(ctx context.Context, file *garbage) error {
	switch file.Kind {
	case garbageGate: // stays open if the claim is attached by now
		return d.sandboxes.syncGate(file.Claim)
	case garbageMetadata:
		return d.removeMetadata(ctx, file)
	case garbageNamespace:
		return d.sandboxes.unpinUnknown(file.Path)
	case garbageLog:
		return d.callLog.Sweep(time.Now().Add(-d.config.LogRetention), d.isPrepared)
	}
	return fmt.Errorf("nobody knows how to remove a %s", file.Kind)
}

// removeMetadata removes a spec unless its claim is prepared by now. Prepare has the lock until the claim is known, and the spec
// is written after that.
func (d *Driver) removeMetadata(ctx context.Context, file *garbage) error {
	unlock, err := d.dra.locks.lock(ctx, file.Claim)
	if err != nil {
		return err
	}
	defer unlock()
	if d.isPrepared(file.Claim) {
		return nil
	}
	return errors.Join(d.removeMetadataFile(file.Path), missingIsEmpty(os.Remove(file.Path)))
}

// removeMetadataFile removes the file that a spec gives to containers, and the folders above it that are empty then. The
// folder of a claim is named after it, and may be that of a newer claim of the same name, which has the same file.
func (d *Driver) removeMetadataFile(spec string) error {
	data, err := os.ReadFile(spec)
	if err != nil {
		return missingIsEmpty(err)
	}
	var content specs.Spec
	if err := json.Unmarshal(data, &content); err != nil {
		return nil //nolint:nilerr // it names no file
	}
	root := filepath.Join(d.config.PluginDir, metadataDir)
	var problems []error
	for _, device := range content.Devices {
		for _, mount := range device.ContainerEdits.Mounts {
			path := filepath.Clean(mount.HostPath)
			if !strings.HasPrefix(path, root+"/") || d.hasMetadata(path) {
				continue
			}
			problems = append(problems, missingIsEmpty(os.Remove(path)))
			for folder := filepath.Dir(path); folder != root && len(folder) > len(root); folder = filepath.Dir(folder) {
				if os.Remove(folder) != nil {
					break // it has other files
				}
			}
		}
	}
	return errors.Join(problems...)
}

// metadataDir is the folder of metadata in the plugin's directory (k8s.io/dynamic-resource-allocation/kubeletplugin).
const metadataDir = "dra-device-metadata"

// hasMetadata says whether a file of metadata is that of a prepared claim.
func (d *Driver) hasMetadata(path string) bool {
	folder := filepath.Base(filepath.Dir(filepath.Dir(path)))
	return slices.ContainsFunc(d.claims.all(), func(record ClaimRecord) bool {
		return folder == record.Claim.Namespace+"_"+record.Claim.Name
	})
}

// hasPin says whether a pin is of a sandbox.
func (s *sandboxes) hasPin(name string) bool {
	return slices.ContainsFunc(s.list(), func(box *sandbox) bool { return box.hasPin(name) })
}

// unpinUnknown removes a pin that no sandbox has. It holds the lock meanwhile, so that no sandbox of that name begins in between;
// that takes less than a millisecond.
func (s *sandboxes) unpinUnknown(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, box := range s.byID {
		if box.hasPin(filepath.Base(path)) {
			return nil
		}
	}
	if s.isOrphanPinLocked(filepath.Base(path)) {
		return nil
	}
	return s.executor.Host.Unpin(path)
}
