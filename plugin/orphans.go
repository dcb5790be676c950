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
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// findOrphans returns the orphaned files. It reads the directories first and looks up the owners afterwards: this way,
// files that are created in between are not listed, and any owner of a listed file already exists at the time of the
// lookup.
func (d *Driver) findOrphans() ([]nodestate.Orphan, error) {
	found, err := d.orphanSpecs()
	problems := []error{err}
	pins, err := os.ReadDir(d.config.NetNSDir)
	problems = append(problems, nodeapi.IgnoreMissing(err))
	logs, err := d.callLog.Old(time.Now().Add(-d.config.LogRetention), d.isPrepared)
	problems = append(problems, err)
	for _, entry := range pins {
		// Check in this order, because a sandbox's leftovers are recorded before the sandbox is forgotten.
		if host.IsPinName(entry.Name()) && !d.Sandboxes.HasPin(entry.Name()) && !d.Sandboxes.KeepsLeftover(entry.Name()) &&
			!d.Sandboxes.IsUnrecordedPin(entry.Name()) {
			found = append(found,
				nodestate.Orphan{Kind: nodestate.OrphanNamespace, Path: filepath.Join(d.config.NetNSDir, entry.Name())})
		}
	}
	for _, path := range logs {
		found = append(found, nodestate.Orphan{Kind: nodestate.OrphanLog, Path: path})
	}
	return slices.DeleteFunc(found, isGone), errors.Join(problems...)
}

// orphanSpecs returns the CDI specs of claims that are not prepared.
func (d *Driver) orphanSpecs() ([]nodestate.Orphan, error) {
	entries, err := os.ReadDir(d.config.CDIDir)
	found := []nodestate.Orphan{}
	for _, entry := range entries {
		kind, uid := nodeapi.ParseSpecName(entry.Name())
		needed := d.isPrepared(uid) || d.Sandboxes.IsUnrecorded(uid) || kind != nodeapi.GateSpec && d.journalLost()
		if kind != nodeapi.NoSpec && !needed {
			found = append(found, nodestate.Orphan{Kind: kind, Path: filepath.Join(d.config.CDIDir, entry.Name()),
				Claim: uid})
		}
	}
	return found, nodeapi.IgnoreMissing(err)
}

// isGone reports whether a file no longer exists, that is, whether its owner has removed it since it was listed.
func isGone(file nodestate.Orphan) bool {
	_, err := os.Lstat(file.Path)
	return errors.Is(err, os.ErrNotExist)
}

func (d *Driver) isPrepared(claimUID string) bool {
	_, prepared := d.Claims.Get(claimUID)
	return prepared
}

// journalLost reports whether a journal was lost. In this case, pods with unknown claims may be running, and their
// containers will need the metadata of these claims if they restart.
func (d *Driver) journalLost() bool {
	entries, err := os.ReadDir(d.config.PluginDir)
	return nodeapi.IgnoreMissing(err) != nil ||
		slices.ContainsFunc(entries, func(e os.DirEntry) bool { return nodeapi.IsUnreadableJournal(e.Name()) })
}

// removeOrphans removes orphaned files, each under the lock of the component that may need it. It returns all files
// that it found; if a file could not be removed, its Error contains the reason.
//
// The files may have come into use since they were listed. Therefore, each component checks them again under its lock.
func (d *Driver) removeOrphans(ctx context.Context) ([]nodestate.Orphan, error) {
	found, err := d.findOrphans()
	for i := range found {
		file := &found[i]
		if err := d.removeOrphan(ctx, file); err != nil {
			file.Error = err.Error()
			continue
		}
		klog.FromContext(ctx).Info("Removed an orphan", "kind", file.Kind, "path", file.Path)
	}
	return found, err
}

// removeOrphan removes an orphaned file. The component that manages this kind of file checks again, under its lock,
// that the file is an orphan, since the list may be minutes old.
func (d *Driver) removeOrphan(ctx context.Context, file *nodestate.Orphan) error {
	switch file.Kind {
	case nodeapi.GateSpec: // kept if the claim has been attached in the meantime
		return d.Sandboxes.SyncGate(file.Claim)
	case nodeapi.MetadataSpec:
		return d.removeMetadata(ctx, file)
	case nodeapi.ExternalSpec:
		return d.External.Sync(file.Claim)
	case nodestate.OrphanNamespace:
		return d.Sandboxes.UnpinUnknown(file.Path)
	case nodestate.OrphanLog:
		return d.callLog.Sweep(time.Now().Add(-d.config.LogRetention), d.isPrepared)
	}
	return fmt.Errorf("unknown kind of orphan %q", file.Kind)
}

// removeMetadata removes a spec unless its claim has been prepared in the meantime. Prepare holds the lock until the
// claim is recorded, and the spec is written after that.
func (d *Driver) removeMetadata(ctx context.Context, file *nodestate.Orphan) error {
	unlock, err := d.dra.locks.Acquire(ctx, file.Claim)
	if err != nil {
		return err
	}
	defer unlock()
	if d.isPrepared(file.Claim) {
		return nil
	}
	return errors.Join(d.removeMetadataFile(file.Path), nodeapi.IgnoreMissing(os.Remove(file.Path)))
}

// removeMetadataFile removes the file that a spec mounts into containers, and each parent directory that is empty
// afterwards. The directory is named after the claim and may now belong to a newer claim with the same name, which uses
// the same file.
func (d *Driver) removeMetadataFile(spec string) error {
	data, err := os.ReadFile(spec)
	if err != nil {
		return nodeapi.IgnoreMissing(err)
	}
	var content specs.Spec
	if err := json.Unmarshal(data, &content); err != nil {
		return nil //nolint:nilerr // the spec does not name a file
	}
	root := filepath.Join(d.config.PluginDir, metadataDir)
	var problems []error
	for _, device := range content.Devices {
		for _, mount := range device.ContainerEdits.Mounts {
			path := filepath.Clean(mount.HostPath)
			if !strings.HasPrefix(path, root+"/") || d.hasMetadata(path) {
				continue
			}
			problems = append(problems, nodeapi.IgnoreMissing(os.Remove(path)))
			for folder := filepath.Dir(path); folder != root && len(folder) > len(root); folder = filepath.Dir(folder) {
				if os.Remove(folder) != nil {
					break // it contains other files
				}
			}
		}
	}
	return errors.Join(problems...)
}

// metadataDir is the name of the metadata directory in the plugin's directory
// (k8s.io/dynamic-resource-allocation/kubeletplugin).
const metadataDir = "dra-device-metadata"

func (d *Driver) hasMetadata(path string) bool {
	folder := filepath.Base(filepath.Dir(filepath.Dir(path)))
	return slices.ContainsFunc(d.Claims.All(), func(record claims.Record) bool {
		return folder == record.Claim.Namespace+"_"+record.Claim.Name
	})
}
