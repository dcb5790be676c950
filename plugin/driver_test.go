package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// The driver does not exit if it cannot open the journal: restarting it repeatedly would not help. The readiness probe
// reports the reason, and the journal file is kept.
func TestJournalIsAwaited(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.db")
	newer, err := bbolt.Open(path, 0o600, nil)
	if err == nil {
		err = newer.Update(func(tx *bbolt.Tx) error {
			meta, err := tx.CreateBucket([]byte("meta"))
			return errors.Join(err, meta.Put([]byte("schema"), []byte("99")))
		})
	}
	if err = errors.Join(err, newer.Close()); err != nil {
		t.Fatal(err)
	}
	d := &Driver{config: Config{PluginDir: dir}, startup: newStartup()}
	again, opened := make(chan time.Time), make(chan error)
	go func() { opened <- d.awaitJournal(context.Background(), again) }()
	again <- time.Time{} // the first attempt has failed
	again <- time.Time{}
	if missing := d.missing(); len(missing) != 1 || !strings.Contains(missing[0], "newer driver") {
		t.Errorf("missing = %v, want \"newer driver\"", missing)
	}
	if err := os.Remove(path); err != nil {
		t.Fatalf("the newer journal was moved or cannot be removed: %v", err)
	}
	select {
	case again <- time.Time{}:
		err = <-opened
	case err = <-opened: // an attempt was already running
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = d.journal.Close()
}

func TestWaitingForTheJournalEnds(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "journal.db"), 0o700); err != nil { // so that opening it as a file fails
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	d := &Driver{config: Config{PluginDir: dir}, startup: newStartup()}
	if err := d.awaitJournal(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context.Canceled", err)
	}
}
