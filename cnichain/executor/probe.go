package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/dra-networking/dra-network-driver/cnichain"
)

// probeKey changes when a binary is replaced: a rename makes the path refer to another inode, and a write to the file
// changes its modification time.
type probeKey struct {
	path  string
	inode uint64
	mtime int64
}

// binary returns the current path of a step's plugin. This is the path recorded when the claim was prepared or, if the
// plugin directory has moved since then, the plugin's new path.
func (e *Executor) binary(step *cnichain.PlanStep) string {
	if _, err := os.Stat(step.Path); !errors.Is(err, os.ErrNotExist) {
		return step.Path
	}
	path, err := e.Exec.FindInPath(step.Type, e.Dirs)
	if err != nil {
		return step.Path // the call then reports that the binary is missing
	}
	return path
}

// CannotAsk appears in every error message about a CNI plugin that does not report its supported versions.
const CannotAsk = "cannot query CNI plugin"

// Probe looks up plugins and queries each one for its supported CNI versions, once per binary. Types without a binary
// are omitted from the result; [cnichain.Compile] reports them. Probe returns an error if a binary does not respond.
func (e *Executor) Probe(ctx context.Context, cniTypes []string) (map[string]cnichain.Plugin, error) {
	plugins := make(map[string]cnichain.Plugin, len(cniTypes))
	for _, cniType := range cniTypes {
		path, err := e.Exec.FindInPath(cniType, e.Dirs)
		if err != nil {
			continue
		}
		plugin, err := e.probe(ctx, path)
		if err != nil {
			return nil, fmt.Errorf(CannotAsk+" %s for its versions: %w", path, explainStart(path, err))
		}
		plugins[cniType] = plugin
	}
	return plugins, nil
}

// probe queries a program only once, even if several claims need it. Two concurrent callers may both query it and get
// the same result. Failures are not cached, since an installer may still be writing the program.
func (e *Executor) probe(ctx context.Context, path string) (cnichain.Plugin, error) {
	info, err := os.Stat(path)
	if err != nil {
		return cnichain.Plugin{}, err
	}
	key := probeKey{path: path, mtime: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		key.inode = stat.Ino
	}
	if known, found := e.probed.Load(key); found {
		return known.(cnichain.Plugin), nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	versions, err := invoke.GetVersionInfo(ctx, path, e.Exec)
	if err != nil {
		return cnichain.Plugin{}, err
	}
	plugin := cnichain.Plugin{Path: path, Versions: versions.SupportedVersions()}
	e.probed.Store(key, plugin)
	return plugin, nil
}
