package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/plugin/internal/install"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// repairing returns a driver whose sweeps repair its installation, and a function that runs a sweep.
func (f *fixture) repairing() (d *Driver, sweep func()) {
	f.Helper()
	d = f.driver()
	d.External = f.dra.External
	d.config.NetNSDir = filepath.Join(f.dir, "netns")
	directories := install.NewDirectories("/proc", d.config.CDIDir, d.config.NetNSDir)
	d.installed = installation{directories: directories, helper: &install.Helper{}}
	var err error
	d.installed.journal, err = os.Lstat(d.journalPath())
	f.must(err)
	sweeper := f.sweeper()
	return d, func() { d.sweep(f.Context(), sweeper) }
}

// A sweep restores the gates of attached claims, regardless of any damage to their files, and reports failures.
func TestRemovedFilesAreRepaired(t *testing.T) {
	f := newFixture(t)
	d, sweep := f.repairing()
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	gate := filepath.Join(d.config.CDIDir, nodeapi.GateName("claim-a"))
	whole, err := os.ReadFile(gate)
	f.must(err)
	for _, test := range []struct {
		name   string
		damage func() error
		repair func() error // the administrator's repair; may be nil
		want   string       // message of /readyz until the repair
	}{
		{name: "CDI directory removed", damage: func() error { return os.RemoveAll(d.config.CDIDir) }},
		{name: "gate removed", damage: func() error { return os.Remove(gate) }},
		{name: "gate truncated", damage: func() error { return os.Truncate(gate, 20) }},
		{name: "gate of another claim", damage: func() error { return os.WriteFile(gate, []byte("{}"), 0o600) }},
		{name: "gate a dangling link", damage: func() error {
			return errors.Join(os.Remove(gate), os.Symlink("/nowhere", gate))
		}},
		{name: "gate a directory", damage: func() error { return errors.Join(os.Remove(gate), os.Mkdir(gate, 0o700)) },
			repair: func() error { return os.Remove(gate) },
			want:   "CDI specs: cannot open the gate of claim ns/claim-a"},
		{name: "CDI directory a file", damage: func() error {
			return errors.Join(os.RemoveAll(d.config.CDIDir), os.WriteFile(d.config.CDIDir, nil, 0o600))
		}, repair: func() error { return os.Remove(d.config.CDIDir) },
			want: "directories: cannot create directory " + d.config.CDIDir},
		{name: "journal removed", damage: func() error { return os.Rename(d.journalPath(), d.journalPath()+"-away") },
			repair: func() error { return os.Rename(d.journalPath()+"-away", d.journalPath()) },
			want:   "journal: cannot keep the journal for the next driver process: " + d.journalPath()},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.must(test.damage())
			sweep()
			says := strings.Join(d.missing(), "\n")
			if test.want != "" && !strings.Contains(says, test.want) {
				t.Errorf("reasons for not being ready = %q, want %q", says, test.want)
			}
			if test.repair != nil {
				f.must(test.repair())
				sweep()
				says = strings.Join(d.missing(), "\n")
			}
			if strings.Contains(says, "cannot open") || strings.Contains(says, "journal") ||
				strings.Contains(says, "directories") {
				t.Errorf("reasons for not being ready after the repair: %s", says)
			}
			if data, err := os.ReadFile(gate); err != nil || string(data) != string(whole) {
				t.Errorf("the gate contains %q, error %v", data, err)
			}
		})
	}
	if says := strings.Join(d.missing(), "\n"); !strings.Contains(says, "helper programs: cannot install") {
		t.Errorf("reasons for not being ready without a helper = %q", says)
	}
}
