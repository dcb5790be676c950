package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// plugin is the plugin, with the directories that it uses.
type plugin struct {
	state string // directory for records
	pci   string // PCI devices in sysfs
}

// record contains the data that DEL needs.
type record struct {
	Stdin    json.RawMessage // the raw configuration, because decoding it would lose parts
	Settings settings        // before ADD
	Link     string          // the name on the host; empty for functions without a link
	MAC      string          // the address of the link
}

func (p *plugin) recordPath(args *skel.CmdArgs) string {
	return filepath.Join(p.state, args.ContainerID+"-"+args.IfName)
}

// save stores the record under the container ID and the interface name, because DEL receives these instead of the
// device.
func (p *plugin) save(args *skel.CmdArgs, r *record) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(p.state, 0o700)
	}
	if err == nil {
		err = os.WriteFile(p.recordPath(args), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot keep what DEL must know: %w", err)
	}
	return nil
}

// load returns the record, or nil if there is none.
func (p *plugin) load(args *skel.CmdArgs) (*record, error) {
	data, err := os.ReadFile(p.recordPath(args))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	r := &record{}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the record of ADD: %w", err)
	}
	return r, nil
}

func (p *plugin) claimPath(address string) string { return filepath.Join(p.state, "pci", address) }

// lock acquires the lock that is held while a function is being changed. The lock file is not removed. The kernel
// releases the lock when the plugin exits, even if it is killed.
func (p *plugin) lock(address string) (unlock func(), err error) {
	path := filepath.Join(p.state, "pci", "vf_lock", address+".lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// claim records that a namespace owns the function. It fails if a namespace that has claimed the function still exists.
// A function is released when the namespace is destroyed, so a missing DEL does not block the function forever. The
// caller must hold the lock.
func (p *plugin) claim(address, namespace string) error {
	path := p.claimPath(address)
	if holder, err := os.ReadFile(path); err == nil && ns.IsNSorErr(string(holder)) == nil {
		return fmt.Errorf("pci address %s is already allocated: to %s", address, holder)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(namespace), 0o600)
}

func (p *plugin) release(address string) error {
	if err := os.Remove(p.claimPath(address)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
