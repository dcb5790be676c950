package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/plugin/internal/install"
)

// installation is the set of files and directories that the driver needs on the node and that it repairs while it is
// running.
type installation struct {
	directories *install.Directories
	helper      *install.Helper
	// journal identifies the open journal file.
	journal fs.FileInfo
	defects defects
}

// defects records which parts of the installation the last sweep could not repair. It is safe for concurrent use.
type defects struct {
	mu     sync.Mutex
	byPart map[string]error
}

// note records a part's defect (nil if there is none) and logs the defect if it has changed.
func (s *defects) note(ctx context.Context, part string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fmt.Sprint(s.byPart[part]) == fmt.Sprint(err) {
		return
	}
	if s.byPart == nil {
		s.byPart = map[string]error{}
	}
	if s.byPart[part] = err; err == nil {
		klog.FromContext(ctx).Info("Repaired a part of the installation", "part", part)
		return
	}
	klog.FromContext(ctx).Error(err, "Cannot repair a part of the installation; retrying in the next sweep", "part",
		part)
}

func (s *defects) texts() (texts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range slices.Sorted(maps.Keys(s.byPart)) {
		if err := s.byPart[part]; err != nil {
			texts = append(texts, part+": "+err.Error())
		}
	}
	return texts
}

// These are the names of the parts of the installation, as they appear in /readyz and in logs.
const (
	partDirectories  = "directories"
	partHelper       = "helper programs"
	partJournal      = "journal"
	partGates        = "CDI specs"
	partMetadata     = "device metadata"
	partAnnouncement = "runtime"
	partExternal     = "files about externally attached devices"
)

func newInstallation(config *Config, helperDir string) (installation, error) {
	helper, err := install.NewHelper(helperDir)
	return installation{helper: helper, directories: install.NewDirectories(config.HostProcDir, config.PluginDir,
		config.CDIDir, config.NetNSDir)}, err
}

// repairInstallation restores the files and directories that the driver, its hook and the runtime need on the node,
// regardless of how they were removed or changed. Directories come first, since files are written to them.
func (d *Driver) repairInstallation(ctx context.Context) {
	d.installed.defects.note(ctx, partDirectories, d.installed.directories.Repair())
	d.installed.defects.note(ctx, partHelper, d.installed.helper.Install(ctx))
	d.installed.defects.note(ctx, partJournal, d.journalIsThere())
}

// repairFiles restores the claims' files, which are read by the kubelet, the runtime and other components that attach
// devices.
func (d *Driver) repairFiles(ctx context.Context) {
	d.installed.defects.note(ctx, partMetadata, d.repairMetadata(ctx))
	d.installed.defects.note(ctx, partExternal, d.External.Sync(""))
	// Call Announce last, since it makes the runtime read all specs.
	d.installed.defects.note(ctx, partAnnouncement, d.installed.directories.Announce(d.config.CDIDir))
}

func (d *Driver) journalPath() string { return filepath.Join(d.config.PluginDir, "journal.db") }

// journalIsThere returns an error if the driver's open journal is no longer the file that the next driver process would
// open. Once an open file has been deleted, its name cannot be restored.
func (d *Driver) journalIsThere() error {
	now, err := os.Lstat(d.journalPath())
	if err == nil && !os.SameFile(now, d.installed.journal) {
		err = errors.New("it is a different file")
	}
	if err != nil {
		return fmt.Errorf("cannot keep the journal for the next driver process: %s was removed or replaced (%w); "+
			"drain the node and restart the driver's pod", d.journalPath(), err)
	}
	return nil
}
