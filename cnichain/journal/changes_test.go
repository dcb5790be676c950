package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"
)

// kill closes a journal the way SIGKILL would: pending changes are not written, and the lock is released.
func kill(t *testing.T, opened Opened) {
	t.Helper()
	opened.mu.Lock()
	opened.closed = true
	opened.mu.Unlock()
	if opened.notes != nil {
		opened.notes.close()
	}
	if err := opened.bolt.Close(); err != nil {
		t.Fatal(err)
	}
}

func openWith(t *testing.T, path string, clock *clocktesting.FakeClock) (Opened, *Bucket[thing]) {
	t.Helper()
	opened, err := Open(path, clock)
	if err != nil {
		t.Fatal(err)
	}
	if opened.NotesOff != nil {
		t.Fatal(opened.NotesOff)
	}
	bucket, err := NewBucket[thing](opened.DB, "things")
	if err != nil {
		t.Fatal(err)
	}
	return opened, bucket
}

func allOf(t *testing.T, bucket *Bucket[thing]) map[string]string {
	t.Helper()
	records, damaged, err := bucket.All()
	if err != nil || len(damaged) > 0 {
		t.Fatal(damaged, err)
	}
	names := map[string]string{}
	for key, record := range records {
		names[key] = record.Name
	}
	return names
}

// history describes a sequence of operations on a journal: the records after each operation, and the last operation
// that must be on disk.
type history struct {
	states  []map[string]string
	durable int
}

// live performs random operations on a journal.
func (h *history) live(t *testing.T, random *rand.Rand, bucket *Bucket[thing], clock *clocktesting.FakeClock) {
	t.Helper()
	for range random.IntN(12) {
		key, name := fmt.Sprint("key-", random.IntN(4)), fmt.Sprint(random.Uint32())
		now, err, durable := maps.Clone(h.states[len(h.states)-1]), error(nil), false
		switch random.IntN(5) {
		case 0:
			now[key], durable = name, true
			err = bucket.Put(key, thing{Name: name})
		case 1:
			delete(now, key)
			durable = true
			err = bucket.Delete(key)
		case 2:
			delete(now, key)
			err = bucket.NoteDeleted(key)
		case 3:
			now[key] = name
			err = bucket.Note(key, thing{Name: name})
		case 4:
			clock.Step(flushAfter)
			flushed(bucket.db)
			durable = true
		}
		if err != nil {
			t.Fatal(err)
		}
		h.states = append(h.states, now)
		if durable {
			h.durable = len(h.states) - 1
		}
	}
}

// flushed waits until a running flush is complete.
func flushed(db *DB) {
	for {
		db.mu.Lock()
		waits := len(db.waiting) > 0
		db.mu.Unlock()
		if !waits {
			return
		}
		runtime.Gosched()
	}
}

// If the process is killed, nothing is lost. After a power loss, only the newest operations are missing. No operation
// that must be on disk is missing, however much of the notes file remains.
func TestWhatIsForgotten(t *testing.T) {
	replayed := 0
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a reproducible test
		path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
		h := &history{states: []map[string]string{{}}}
		for range 12 {
			opened, bucket := openWith(t, path, clock)
			if have, want := allOf(t, bucket), h.states[len(h.states)-1]; !maps.Equal(have, want) {
				t.Fatalf("seed %d: records = %v, want %v", seed, have, want)
			}
			replayed += opened.Replayed
			h.live(t, random, bucket, clock)
			switch random.IntN(4) {
			case 0:
				if err := opened.Close(); err != nil {
					t.Fatal(err)
				}
				h.durable = len(h.states) - 1
				continue
			case 1:
				kill(t, opened)
				continue
			case 2:
				kill(t, opened)
				if err := os.Remove(path + ".notes"); err != nil {
					t.Fatal(err)
				}
			case 3:
				kill(t, opened)
				tear(t, random, path+".notes")
			}
			opened, bucket = openWith(t, path, clock)
			h.forget(t, seed, allOf(t, bucket))
			kill(t, opened)
		}
	}
	if replayed == 0 {
		t.Error("no note was ever replayed")
	}
}

// tear overwrites part of a file with zeros, as if that part had not reached the disk.
func tear(t *testing.T, random *rand.Rand, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.WriteAt(make([]byte, 4096), random.Int64N(600)); err != nil {
		t.Fatal(err)
	}
}

// forget truncates the history to the state that survived.
func (h *history) forget(t *testing.T, seed uint64, have map[string]string) {
	t.Helper()
	for i := len(h.states) - 1; i >= h.durable; i-- {
		if maps.Equal(h.states[i], have) {
			h.states = h.states[:i+1]
			return
		}
	}
	t.Fatalf("seed %d: records = %v, want a state since the last durable operation: %v", seed, have,
		h.states[h.durable:])
}

// Notes are outdated if a driver without support for notes has since written to the journal.
func TestNotesOlderThanAnotherDriversWork(t *testing.T) {
	path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
	opened, bucket := openWith(t, path, clock)
	if err := bucket.Put("a", thing{Name: "attaching"}); err != nil {
		t.Fatal(err)
	}
	if err := bucket.Note("a", thing{Name: "ready"}); err != nil {
		t.Fatal(err)
	}
	kill(t, opened)
	writeAsOlder(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("things")).Delete([]byte("a")) })
	for range 2 {
		opened, bucket = openWith(t, path, clock)
		if have := allOf(t, bucket); len(have) > 0 || opened.Replayed > 0 {
			t.Errorf("records = %v, %d replayed, want none", have, opened.Replayed)
		}
		kill(t, opened)
	}
}

// A driver may be killed before its first transaction, whether it is the first one with support for notes or follows
// one without it.
func TestFirstNotesOnAnotherDriversJournal(t *testing.T) {
	for name, write := range map[string]func(*bbolt.Tx) error{
		"upgrade": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(metaBucket)).Delete([]byte(positionKey))
		},
		"downgrade and upgrade": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("things")).Delete([]byte("a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
			opened, _ := openWith(t, path, clock)
			kill(t, opened)
			writeAsOlder(t, path, write)
			opened, bucket := openWith(t, path, clock)
			if err := bucket.Note("a", thing{Name: "attaching"}); err != nil {
				t.Fatal(err)
			}
			kill(t, opened)
			opened, bucket = openWith(t, path, clock)
			defer func() { _ = opened.Close() }()
			if have := allOf(t, bucket); !maps.Equal(have, map[string]string{"a": "attaching"}) {
				t.Errorf("unexpected records: %v", have)
			}
		})
	}
}

// writeAsOlder writes to the journal like a driver without support for notes.
func writeAsOlder(t *testing.T, path string, write func(*bbolt.Tx) error) {
	t.Helper()
	older, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := older.Update(write); err != nil {
		t.Fatal(err)
	}
	if err := older.Close(); err != nil {
		t.Fatal(err)
	}
}

// If a damaged journal is set aside, its notes are not applied to the new journal. The next process reads the new
// journal's notes.
func TestNotesOfAJournalSetAside(t *testing.T) {
	path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
	opened, bucket := openWith(t, path, clock)
	for range 20 {
		if err := bucket.Note("old", thing{Name: "old"}); err != nil {
			t.Fatal(err)
		}
	}
	kill(t, opened)
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	opened, bucket = openWith(t, path, clock)
	if opened.SetAside == "" {
		t.Fatal("the journal was not set aside")
	}
	if err := bucket.Note("new", thing{Name: "new"}); err != nil {
		t.Fatal(err)
	}
	kill(t, opened)
	opened, bucket = openWith(t, path, clock)
	defer func() { _ = opened.Close() }()
	if have := allOf(t, bucket); !maps.Equal(have, map[string]string{"new": "new"}) {
		t.Errorf("unexpected records: %v", have)
	}
}

// On a full disk, notes fail once the journal has noticed that the disk is full. A failed operation leaves nothing
// behind, and earlier notes are written as soon as there is space.
func TestDiskIsFull(t *testing.T) {
	path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
	opened, bucket := openWith(t, path, clock)
	defer func() { _ = opened.Close() }()
	large := strings.Repeat("x", 200_000)
	if err := bucket.Put("put", thing{Name: "old"}); err != nil {
		t.Fatal(err)
	}
	opened.bolt.MaxSize = 1
	if err := bucket.Note("noted", thing{Name: large}); err != nil {
		t.Fatal(err)
	}
	if err := bucket.Note("put", thing{Name: "noted"}); err != nil {
		t.Fatal(err)
	}
	clock.Step(flushAfter)
	for failing := false; !failing; runtime.Gosched() {
		opened.mu.Lock()
		failing = opened.failing && opened.flush != nil
		opened.mu.Unlock()
	}
	for _, refused := range []func(string, thing) error{bucket.Note, bucket.Put} {
		for _, key := range []string{"refused", "put"} {
			if err := refused(key, thing{Name: "refused"}); err == nil || !strings.Contains(err.Error(), "full") {
				t.Errorf("unexpected error: %v", err)
			}
		}
	}
	opened.bolt.MaxSize = 0
	clock.Step(retryAfter)
	flushed(opened.DB)
	kill(t, opened)
	if err := os.Remove(path + ".notes"); err != nil {
		t.Fatal(err)
	}
	opened, bucket = openWith(t, path, clock)
	if have := allOf(t, bucket); !maps.Equal(have, map[string]string{"put": "noted", "noted": large}) {
		t.Errorf("unexpected records: %.100v", have)
	}
}

// An accepted note that does not fit on the disk blocks all writes until its record is deleted.
func TestDiskIsFullUntilARecordEnds(t *testing.T) {
	path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
	opened, bucket := openWith(t, path, clock)
	defer func() { _ = opened.Close() }()
	opened.bolt.MaxSize = 1
	if err := bucket.Note("large", thing{Name: strings.Repeat("x", 200_000)}); err != nil {
		t.Fatal(err)
	}
	if err := bucket.Put("small", thing{Name: "refused"}); err == nil {
		t.Error("a record was stored before earlier notes were")
	}
	if err := errors.Join(bucket.Delete("large"), bucket.Put("small", thing{Name: "stored"})); err != nil {
		t.Error(err)
	}
	kill(t, opened)
	opened, bucket = openWith(t, path, clock)
	if have := allOf(t, bucket); !maps.Equal(have, map[string]string{"small": "stored"}) {
		t.Errorf("unexpected records: %v", have)
	}
}

// A driver that starts on a full disk reads the notes, and writes them as soon as there is space.
func TestDiskIsFullAtTheStart(t *testing.T) {
	path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
	opened, bucket := openWith(t, path, clock)
	large := strings.Repeat("x", notesSize*2/3)
	if err := errors.Join(bucket.Put("a", thing{Name: large}), bucket.Put("b", thing{Name: "b"}),
		bucket.NoteDeleted("b"), bucket.Note("c", thing{Name: large})); err != nil {
		t.Fatal(err)
	}
	kill(t, opened)
	free := limitFileSize(t, notesSize)
	opened, bucket = openWith(t, path, clock)
	want := map[string]string{"a": large, "c": large}
	if have := allOf(t, bucket); !maps.Equal(have, want) || opened.Replayed != 2 {
		t.Errorf("records = %.100v, %d notes replayed, want 2 replayed", have, opened.Replayed)
	}
	if err := bucket.Note("refused", thing{Name: large}); err == nil {
		t.Error("a write to a full disk returned no error")
	}
	free()
	clock.Step(retryAfter)
	flushed(opened.DB)
	kill(t, opened)
	if err := os.Remove(path + ".notes"); err != nil {
		t.Fatal(err)
	}
	opened, bucket = openWith(t, path, clock)
	defer func() { _ = opened.Close() }()
	if have := allOf(t, bucket); !maps.Equal(have, want) {
		t.Errorf("unexpected records: %.100v", have)
	}
}

// If concurrent writes fail, none of their changes are stored later, and earlier notes are kept.
func TestManyAreRefusedAtOnce(t *testing.T) {
	const callers = 8
	path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
	opened, bucket := openWith(t, path, clock)
	if err := bucket.Note("a", thing{Name: "noted"}); err != nil {
		t.Fatal(err)
	}
	before := opened.seq
	opened.bolt.MaxSize = 1
	opened.committing.Lock()
	var wait sync.WaitGroup
	for range callers {
		wait.Go(func() {
			if err := bucket.Put("a", thing{Name: strings.Repeat("x", 200_000)}); err == nil {
				t.Error("a write to a full disk returned no error")
			}
		})
	}
	for staged := uint64(0); staged < callers; runtime.Gosched() {
		opened.mu.Lock()
		staged = opened.seq - before
		opened.mu.Unlock()
	}
	opened.committing.Unlock()
	wait.Wait()
	opened.bolt.MaxSize = 0
	if have := allOf(t, bucket); have["a"] != "noted" {
		t.Errorf("record a = %.20q, want \"noted\"", have["a"])
	}
	kill(t, opened)
}

// Once the notes file is full, further notes wait for the disk, and no note is lost.
func TestFileOfNotesIsFull(t *testing.T) {
	path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
	opened, bucket := openWith(t, path, clock)
	want := map[string]string{}
	for i := range 25 {
		key, name := fmt.Sprint("key-", i), strings.Repeat(fmt.Sprint(i%10), 100_000)
		if err := bucket.Note(key, thing{Name: name}); err != nil {
			t.Fatal(err)
		}
		want[key] = name
	}
	kill(t, opened)
	opened, bucket = openWith(t, path, clock)
	defer func() { _ = opened.Close() }()
	if have := allOf(t, bucket); !maps.Equal(have, want) || opened.Replayed == 0 || opened.Replayed == len(want) {
		t.Errorf("got %d records and %d replayed notes", len(have), opened.Replayed)
	}
}

// Without a notes file, each note waits for the disk.
func TestNotesWithoutTheirFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	if err := os.Mkdir(path+".notes", 0o700); err != nil {
		t.Fatal(err)
	}
	opened, bucket := openAt(t, path)
	if opened.NotesOff == nil {
		t.Error("NotesOff does not report that notes cannot be used")
	}
	if err := bucket.Note("a", thing{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	kill(t, opened)
	opened, bucket = openAt(t, path)
	defer func() { _ = opened.Close() }()
	if have := allOf(t, bucket); !maps.Equal(have, map[string]string{"a": "a"}) {
		t.Errorf("unexpected records: %v", have)
	}
}

// Notes left by a killed driver are not lost if they are temporarily unreadable.
func TestNotesThatCannotBeRead(t *testing.T) {
	path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
	opened, bucket := openWith(t, path, clock)
	if err := bucket.Note("a", thing{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	kill(t, opened)
	notes, aside := path+".notes", path+".aside"
	if err := errors.Join(os.Rename(notes, aside), os.Symlink(notes, notes)); err != nil { // a symlink loop
		t.Fatal(err)
	}
	if _, err := Open(path, clock); !errors.Is(err, errNotesUnread) || !errors.Is(err, unix.ELOOP) {
		t.Errorf("unexpected error: %v", err)
	}
	if err := os.Rename(aside, notes); err != nil {
		t.Fatal(err)
	}
	opened, bucket = openWith(t, path, clock)
	defer func() { _ = opened.Close() }()
	if have := allOf(t, bucket); !maps.Equal(have, map[string]string{"a": "a"}) || opened.Replayed != 1 {
		t.Errorf("records = %v, %d notes replayed, want one", have, opened.Replayed)
	}
}

// Notes that a process could not read count as older than all changes written by that process.
func TestNotesAreUnreadableForAProcess(t *testing.T) {
	path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
	opened, bucket := openWith(t, path, clock)
	for range 20 {
		if err := bucket.Note("a", thing{Name: "old"}); err != nil {
			t.Fatal(err)
		}
	}
	kill(t, opened)
	notes, err := os.ReadFile(path + ".notes")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path+".notes"), os.Mkdir(path+".notes", 0o700)); err != nil {
		t.Fatal(err)
	}
	opened, bucket = openAt(t, path)
	if err := bucket.Put("a", thing{Name: "new"}); err != nil {
		t.Fatal(err)
	}
	kill(t, opened)
	if err := errors.Join(os.Remove(path+".notes"), os.WriteFile(path+".notes", notes, 0o600)); err != nil {
		t.Fatal(err)
	}
	opened, bucket = openWith(t, path, clock)
	if have := allOf(t, bucket); !maps.Equal(have, map[string]string{"a": "new"}) {
		t.Errorf("unexpected records: %v", have)
	}
	if err := bucket.Note("a", thing{Name: "newest"}); err != nil {
		t.Fatal(err)
	}
	kill(t, opened)
	opened, bucket = openWith(t, path, clock)
	defer func() { _ = opened.Close() }()
	if have := allOf(t, bucket); !maps.Equal(have, map[string]string{"a": "newest"}) {
		t.Errorf("unexpected records: %v", have)
	}
}

// A notes file is readable even if its allocated space is gone and cannot be allocated again.
func TestNotesWithoutSpaceAreReplayed(t *testing.T) {
	path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
	opened, bucket := openWith(t, path, clock)
	if err := bucket.Note("a", thing{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	kill(t, opened)
	if err := os.Truncate(path+".notes", 500); err != nil {
		t.Fatal(err)
	}
	limitFileSize(t, notesSize/2)
	opened, bucket = openAt(t, path)
	defer func() { _ = opened.Close() }()
	if opened.NotesOff == nil {
		t.Error("NotesOff does not report that notes cannot be used")
	}
	if have := allOf(t, bucket); !maps.Equal(have, map[string]string{"a": "a"}) {
		t.Errorf("unexpected records: %v", have)
	}
}

// limitFileSize prevents this process from extending files beyond a size until lift is called.
func limitFileSize(t *testing.T, size uint64) (lift func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	lift = func() { _ = unix.Setrlimit(unix.RLIMIT_FSIZE, &before) }
	t.Cleanup(lift)
	return lift
}

// After a power loss, only some pages of the notes may be on disk. Even if notes end at page boundaries, the readable
// notes are a prefix of the notes at some point in time.
func TestNotesOfTwoTimes(t *testing.T) {
	const noteSize, notesPerPage, pages = 256, 16, 3
	path := filepath.Join(t.TempDir(), "notes")
	contents := [2][]byte{}
	notes, _, err := openNotes(path)
	if err != nil {
		t.Fatal(err)
	}
	defer notes.close()
	for i := range contents {
		for k := range notesPerPage * pages {
			note := change{Seq: uint64(1000*(i+1) + k), Bucket: "things"}
			body, _ := json.Marshal(note)
			note.Key = strings.Repeat("k", noteSize-noteHeader-len(body))
			if err := notes.append(&note); err != nil {
				t.Fatal(err)
			}
		}
		if notes.end != noteSize*notesPerPage*pages {
			t.Fatalf("the notes have an unexpected size: %d bytes", notes.end)
		}
		notes.rewind()
		if contents[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	for kept := range 1 << pages {
		mixed := slices.Clone(contents[0])
		for page := range pages {
			if kept>>page&1 == 1 {
				start, end := page*noteSize*notesPerPage, (page+1)*noteSize*notesPerPage
				copy(mixed[start:end], contents[1][start:end])
			}
		}
		if err := os.WriteFile(path, mixed, 0o600); err != nil {
			t.Fatal(err)
		}
		opened, found, err := openNotes(path)
		if err != nil {
			t.Fatal(err)
		}
		opened.close()
		if len(found) < notesPerPage {
			t.Errorf("pages %03b: read only %d notes", kept, len(found))
		}
		for k, note := range found {
			if note.Seq != found[0].Seq+uint64(k) {
				t.Fatalf("pages %03b: note %d comes after note %d", kept, note.Seq, found[k-1].Seq)
			}
		}
	}
}

// Callers that wait for the disk at the same time share a transaction.
func TestCallersAtOnceShareATransaction(t *testing.T) {
	const callers = 64
	path, clock := filepath.Join(t.TempDir(), "journal.db"), epoch()
	opened, bucket := openWith(t, path, clock)
	defer func() { _ = opened.Close() }()
	transaction := func() (id int) {
		_ = opened.bolt.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil })
		return id
	}
	before := transaction()
	opened.committing.Lock()
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() {
			write := bucket.Put
			if i%2 == 0 {
				write = bucket.Note
			}
			if err := write(fmt.Sprint(i), thing{Name: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	for staged := 0; staged < callers; runtime.Gosched() {
		opened.mu.Lock()
		staged = len(opened.waiting)
		opened.mu.Unlock()
	}
	opened.committing.Unlock()
	wait.Wait()
	if n := transaction() - before; n != 1 {
		t.Errorf("concurrent calls used %d transactions, want 1", n)
	}
	if have := allOf(t, bucket); len(have) != callers {
		t.Errorf("got %d records, want one for each caller", len(have))
	}
}
