package kerneltest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
)

// If a record is damaged, it is unknown which devices are attached, so the driver does not touch any devices. It starts
// anyway, unless the journal was written by a newer driver version.
func TestDamagedJournalLeavesPodsAlone(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	s := newSweep(t)
	path := filepath.Join(s.orders.Dir, "journal.db")
	for name, damage := range map[string]func() error{
		"garbage":   func() error { return os.WriteFile(path, []byte(strings.Repeat("x", 70000)), 0o600) },
		"empty":     func() error { return os.Truncate(path, 0) },
		"truncated": func() error { return os.Truncate(path, 9000) },
		"one page":  func() error { return os.Truncate(path, 4096) },
		"torn": func() error {
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			_, err = file.WriteAt(make([]byte, 16384), 0)
			return err
		},
	} {
		s.run(orders{Add: true})
		kept, err := os.ReadFile(path)
		s.must(err)
		attached := s.state()
		s.must(damage())
		s.run(orders{Recover: true})
		s.expect(name, attached)
		aside, err := filepath.Glob(path + ".unreadable-*")
		s.must(err)
		if len(aside) != 1 {
			t.Fatalf("%s: files set aside = %v, want one", name, aside)
		}
		s.must(os.Remove(aside[0]))
		s.must(os.WriteFile(path, kept, 0o600)) // as if an administrator had restored a copy
		s.run(orders{Recover: true})
		s.expect(name+", repaired", s.before)
	}
}

func TestNewerJournalIsLeftAlone(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	s := newSweep(t)
	path := filepath.Join(s.orders.Dir, "journal.db")
	s.run(orders{Add: true})
	attached := s.state()
	schema := func(version string) {
		db, err := bbolt.Open(path, 0o600, nil)
		s.must(err)
		s.must(db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("meta")).Put([]byte("schema"),
				[]byte(version))
		}))
		s.must(db.Close())
	}
	schema("99")
	output, err := s.process(orders{Recover: true}).CombinedOutput()
	if err == nil || !strings.Contains(string(output), "newer driver") {
		t.Errorf("recovery printed %q, %v, want an error about a newer driver", output, err)
	}
	s.expect("a newer journal", attached)
	schema("1")
	s.run(orders{Recover: true})
	s.expect("its own journal", s.before)
}

// smallDisk is a file system that tests can fill up.
type smallDisk struct {
	*testing.T
	dir string
}

func newSmallDisk(t *testing.T) *smallDisk {
	d := &smallDisk{T: t, dir: t.TempDir()}
	if err := unix.Mount("tmpfs", d.dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("needs permission to mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
	return d
}

func (d *smallDisk) filler() string { return filepath.Join(d.dir, "filler") }

// fill uses up all space on the disk.
func (d *smallDisk) fill() {
	d.Helper()
	file, err := os.Create(d.filler())
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, size := range []int{4096, 1} {
		for err == nil {
			_, err = file.Write(make([]byte, size))
		}
		err = nil
	}
}

func (d *smallDisk) free() { _ = os.Remove(d.filler()) }

// fullJournal is a journal whose disk is full from a given commit onwards.
type fullJournal struct {
	executor.Journal
	number, commits int
	fill            func() error
}

func (j *fullJournal) Save(attachment *executor.Attachment) error {
	if err := j.commit(); err != nil {
		return err
	}
	return j.Journal.Save(attachment)
}

func (j *fullJournal) Note(attachment *executor.Attachment) error {
	if err := j.commit(); err != nil {
		return err
	}
	return j.Journal.Note(attachment)
}

func (j *fullJournal) Delete(sandboxID string) error {
	if err := j.commit(); err != nil {
		return err
	}
	return j.Journal.Delete(sandboxID)
}

func (j *fullJournal) commit() error {
	if j.commits++; j.commits >= j.number {
		return j.fill()
	}
	return nil
}

// The disk fills up at each commit in turn. No step is started unless it can be rolled back, and existing attachments
// are not affected. Once there is space again, everything can be rolled back, even by another process. A disk that is
// really full still accepts some commits, because the journal file has free pages, so each commit is also made to fail
// artificially.
func TestFullDisk(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	b := newBench(t)
	plugins := []string{b.dir}
	for _, name := range []string{"really", "always"} {
		disk := newSmallDisk(t) // the journal is new and has only a few free pages
		b.dir = disk.dir
		fill := func() error { return syscall.ENOSPC }
		if name == "really" {
			fill = func() error { disk.fill(); return nil }
		}
		refused := 0
		for number := 1; ; number++ {
			b.restart()
			full := &fullJournal{Journal: b.executor.Journal, number: number, fill: fill}
			b.executor.Journal, b.executor.Dirs = full, plugins
			made := b.attachment(threeDoubles)
			addErr := b.add(made)
			if addErr != nil {
				refused++
			}
			delErr := b.executor.Del(context.Background(), made)
			what := fmt.Sprintf("disk %s full at commit %d (%v, %v)", name, number, addErr, delErr)
			if addErr != nil && !strings.Contains(addErr.Error(), "no space left") {
				t.Errorf("%s: the error does not mention the full disk", what)
			}
			disk.free()
			b.restart()
			for _, attachment := range b.left {
				b.executor.Dirs = plugins
				b.must(b.executor.Del(context.Background(), attachment))
			}
			b.expect(what+", then there is room", b.before)
			if full.commits < number {
				break
			}
		}
		t.Logf("disk full at %s: %d ADDs were rejected", name, refused)
		if refused == 0 || name == "always" && refused != 4 { // one for each step, one for the attachment
			t.Errorf("disk full at %s: wrong number of rejected ADDs: %d", name, refused)
		}
	}
}

// A journal on a read-only disk cannot be opened. It is kept, and running pods are not affected.
func TestReadOnlyDisk(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	b := newBench(t)
	disk := newSmallDisk(t)
	plugins := b.dir
	b.dir = disk.dir
	b.restart()
	b.executor.Dirs = []string{plugins}
	b.must(b.add(b.attachment(threeDoubles)))
	attached := b.state()
	b.must(b.db.Close())
	path := filepath.Join(disk.dir, "journal.db")
	before, err := os.ReadFile(path)
	b.must(err)
	exec := executor.PluginExec{Lock: filepath.Join(disk.dir, "cni.lock")}
	call := func() error {
		_, err := exec.Call(context.Background(), "/bin/true", nil, nil)
		return err
	}
	b.must(call())
	b.must(unix.Mount("", disk.dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if err := call(); err != nil {
		t.Errorf("plugins cannot be called while the journal is read-only: %v", err)
	}
	if opened, err := journal.Open(path, clock.RealClock{}); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("error for a read-only journal is wrong: set aside %v, error %v", opened.SetAside, err)
	}
	b.must(unix.Mount("", disk.dir, "", unix.MS_REMOUNT, ""))
	if after, err := os.ReadFile(path); err != nil || !slices.Equal(before, after) {
		t.Errorf("the journal changed: %v", err)
	}
	b.expect("a read-only journal", attached)
	b.restart()
	b.executor.Dirs = []string{plugins}
	b.must(b.executor.Del(context.Background(), b.left["sandbox"]))
	b.expect("writable again", b.before)
}
