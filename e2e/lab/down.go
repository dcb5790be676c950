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

// stopTimeout bounds the end of a cluster; normally it takes a fraction of a second.
const stopTimeout = 20 * time.Second

// Down ends the cluster and removes all its remains. It must not run concurrently with other methods of the handle. It
// returns an error if process 1 does not end within 20 seconds, or its cgroups can't be removed. Down may be called
// again, also after an error: it keeps the state that it needs until everything else is removed.
func (c *Cluster) Down(ctx context.Context) error {
	unlock, err := lockRun(ctx, c.state.RunDir)
	if err != nil {
		return err
	}
	defer unlock()
	// Without this check, an old handle would end the new cluster of another caller.
	if current, err := loadState(c.state.RunDir); err == nil && current.Init != c.state.Init {
		return nil // a newer cluster uses the name, and has removed this one
	}
	if err := c.remove(ctx); err != nil {
		return fmt.Errorf("cannot remove cluster %q: %w", c.state.Name, err)
	}
	return nil
}

// remove ends the cluster and removes its state. It removes the state file last, because the remains cannot be found
// without it.
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

// end kills process 1 and removes the cgroups. With process 1 the kernel ends all other processes and removes mounts
// and interfaces. It ends process 1 of a PID namespace only after all other processes in it (zap_pid_ns_processes), so
// after its end no process uses a cgroup, a mount or a link. With several nodes that includes their PID namespaces,
// which are nested.
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

// Remove ends the cluster that the options identify, whatever its state, and removes all its remains. It reports
// whether there were any. It uses only Name, CacheDir and RunDir of the options. It needs no handle, so that users and
// the next run can clean up after a crash. It may be called again.
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
