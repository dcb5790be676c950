package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// stopTimeout is the time limit for terminating a cluster, which normally takes a fraction of a second.
const stopTimeout = 20 * time.Second

// Down terminates the cluster and removes everything that it leaves behind. It must not run concurrently with other
// methods on the same handle. It returns an error if process 1 does not exit within 20 seconds, or if the cgroups
// cannot be removed. Down may be called again, even after an error: until everything else has been removed, it keeps
// the state that it needs.
func (c *Cluster) Down(ctx context.Context) error {
	unlock, err := lockRun(ctx, c.state.RunDir)
	if err != nil {
		return err
	}
	defer unlock()
	// Without this check, an old handle would terminate another caller's new cluster.
	if current, err := loadState(c.state.RunDir); err == nil && current.Init != c.state.Init {
		return nil // this cluster has been replaced by a newer one with the same name
	}
	if err := c.remove(ctx); err != nil {
		return fmt.Errorf("cannot remove cluster %q: %w", c.state.Name, err)
	}
	return nil
}

// remove terminates the cluster and removes its state. It removes the state file last, because without this file,
// leftovers of the cluster could not be found.
func (c *Cluster) remove(ctx context.Context) error {
	if err := c.end(ctx); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.state.RunDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed by an earlier call
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == stateFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(c.state.RunDir, entry.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(c.state.RunDir)
}

// end kills process 1 and removes the cgroups. When process 1 is killed, the kernel kills all other processes and
// removes mounts and interfaces. Process 1 in a PID namespace exits only after all other processes in the namespace
// (zap_pid_ns_processes), so afterwards, no process uses a cgroup, a mount or a link. In a multi-node cluster, this
// includes the nodes' PID namespaces, which are nested.
func (c *Cluster) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := c.state.Init.kill(ctx); err != nil {
		return err
	}
	if c.exited != nil {
		<-c.exited // reaped
	}
	var err error
	if c.lifetime != nil {
		err = c.lifetime.Close()
		c.lifetime = nil
	}
	return errors.Join(err, removeCgroups(ctx, c.state.Cgroup))
}

// Remove terminates the cluster identified by the options, regardless of its state, and removes everything that it
// leaves behind. It reports whether anything was removed. It uses only the options Name, CacheDir and RunDir. It needs
// no handle, so that users and the next run can clean up after a crash. It may be called more than once.
func Remove(ctx context.Context, o Options) (bool, error) {
	o, err := o.forOpen()
	if err != nil {
		return false, err
	}
	unlock, err := lockRun(ctx, o.RunDir)
	if err != nil {
		return false, err
	}
	defer unlock()
	s, err := loadState(o.RunDir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read the state of cluster %q: %w; remove %s", o.Name, err, o.RunDir)
	}
	if err := newCluster(o, s).remove(ctx); err != nil {
		return true, fmt.Errorf("cannot remove cluster %q: %w", o.Name, err)
	}
	return true, nil
}
