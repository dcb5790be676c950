package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/utils/clock"
)

// flushAfter is how long a note may wait before it is written to disk, so that notes for the same pod and for
// concurrent pods share a commit. retryAfter is the delay after a failed write.
const (
	flushAfter = 20 * time.Millisecond
	retryAfter = time.Second
)

// change is a write of a record or, if Record is empty, its deletion.
type change struct {
	// Seq orders the changes to a journal across all processes that have written to it.
	Seq    uint64          `json:"seq"`
	Bucket string          `json:"bucket"`
	Key    string          `json:"key"`
	Record json.RawMessage `json:"record,omitempty"`

	noted bool
	// replaced is the earlier change to the same record that is still waiting to be written to disk. It is nil for
	// notes, which are never reverted.
	replaced *change
}

type recordID struct{ bucket, key string }

// encode returns the change in the format of the notes file.
func (c *change) encode() ([]byte, error) {
	head, err := json.Marshal(change{Seq: c.Seq, Bucket: c.Bucket, Key: c.Key})
	if err != nil || c.Record == nil {
		return head, err
	}
	return withField(head, "record", c.Record), nil
}

func (c *change) id() recordID { return recordID{c.Bucket, c.Key} }

func (c *change) apply(tx *bbolt.Tx) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(c.Bucket))
	switch {
	case err != nil:
		return err
	case c.Record == nil:
		return bucket.Delete([]byte(c.Key))
	}
	return bucket.Put([]byte(c.Key), c.Record)
}

// changes tracks the sequence of changes to a journal and how much of it is on disk.
//
// Invariant: the disk always contains a prefix of this sequence. Every transaction writes all pending changes, so a
// power loss loses only the most recent changes: if a change is lost, so are all later ones. If the process is killed,
// nothing is lost, because each change is either on disk or in the notes file.
type changes struct {
	bolt  *bbolt.DB
	clock clock.WithDelayedExecution

	// committing is held during a transaction, and is acquired before mu. By the time a caller acquires committing,
	// another caller may already have written its change, so many pods share a single wait for the disk.
	committing sync.Mutex

	mu           sync.Mutex
	seq, written uint64
	waiting      map[recordID]*change
	notes        *noteFile // nil if notes are off
	failing      bool      // the last transaction failed
	flush        clock.Timer
	closed       bool
}

// position is the journal file's position in the sequence of changes. Tx is the number of the transaction that wrote
// the position. If the file's last transaction has a different number, a driver without support for notes has since
// written to the file, so the notes are older than the file. Tx is 0 if this process does not keep notes, since an
// earlier process may have left notes that this process could not read.
type position struct {
	Seq uint64 `json:"seq"`
	Tx  int    `json:"tx"`
}

const positionKey = "position"

// startChanges writes the notes of an earlier process to the journal file, unless the file already contains them. If
// the write fails, the notes stay in the notes file and are read from there. The driver starts regardless, since it can
// detach pods even while the disk is full.
func (o *Opened) startChanges(path string, clock clock.WithDelayedExecution) error {
	db := o.DB
	db.changes = &changes{bolt: db.bolt, clock: clock, waiting: map[recordID]*change{}}
	version, err := storedSchema(db.bolt)
	if err != nil {
		return err
	}
	stored, current, err := storedPosition(db.bolt)
	if err != nil {
		return err
	}
	notes, found, err := openNotes(path + ".notes") // not the path in bbolt, which differs if the journal was replaced
	if errors.Is(err, errNotesUnread) {
		return err
	}
	db.notes, o.NotesOff = notes, err
	db.seq, db.written = stored.Seq, stored.Seq
	for i := range found {
		change := &found[i]
		if change.Seq <= stored.Seq {
			continue
		}
		db.seq = max(db.seq, change.Seq)
		if current {
			change.noted = true
			db.waiting[change.id()] = change
			o.Replayed++
		}
	}
	if version == schema && current && db.seq == stored.Seq {
		return nil // without a current position, the next process would ignore new notes as older than the file
	}
	err = db.commit(func(*bbolt.Tx) error { return nil }) // writes at least the schema and the position
	if err == nil {
		return nil
	}
	if version != schema {
		if notes != nil {
			notes.close()
		}
		return err
	}
	// Do not accept notes until a transaction has succeeded, so that no note precedes the position that it depends on.
	db.mu.Lock()
	defer db.mu.Unlock()
	db.flushLater(retryAfter)
	return nil
}

// storedPosition returns the file's position, and reports whether the position is current, that is, whether no driver
// without support for notes has written to the file since.
func storedPosition(bolt *bbolt.DB) (stored position, current bool, err error) {
	err = bolt.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(metaBucket))
		if meta == nil || meta.Get([]byte(positionKey)) == nil {
			return nil
		}
		if err := json.Unmarshal(meta.Get([]byte(positionKey)), &stored); err != nil {
			return fmt.Errorf("%w: position: %w", errDamaged, err)
		}
		current = stored.Tx == tx.ID()
		return nil
	})
	return stored, current, err
}

// put stores a change and waits until it is on disk.
func (c *changes) put(next *change) error {
	c.mu.Lock()
	c.stage(next)
	c.mu.Unlock()
	return c.commitThrough(next.Seq, next, nil)
}

// note stores a change without waiting for the disk; see [Bucket.Note].
func (c *changes) note(next *change) error {
	c.mu.Lock()
	next.Seq, next.noted = c.seq+1, true
	// If the disk is not writable, return an error now, while the caller can still act on it.
	if c.notes == nil || c.failing || c.closed || c.notes.append(next) != nil {
		c.mu.Unlock()
		next.noted = false
		return c.put(next)
	}
	defer c.mu.Unlock()
	c.stage(next)
	c.flushLater(flushAfter)
	return nil
}

// stage appends a change to the sequence. The caller must hold mu.
func (c *changes) stage(next *change) {
	c.seq++
	next.Seq = c.seq
	if !next.noted {
		next.replaced = c.waiting[next.id()]
	}
	c.waiting[next.id()] = next
}

// takeBack removes a change that could not be written from the pending changes to its record. The caller must hold mu.
func (c *changes) takeBack(refused *change) {
	newest := c.waiting[refused.id()]
	switch {
	case newest != refused:
		for later := newest; later != nil; later = later.replaced {
			if later.replaced == refused {
				later.replaced = refused.replaced
			}
		}
	case refused.replaced != nil:
		c.waiting[refused.id()] = refused.replaced
	default:
		delete(c.waiting, refused.id())
	}
}

// flushLater schedules a write of the notes. The caller must hold mu.
func (c *changes) flushLater(after time.Duration) {
	if c.flush != nil || c.closed {
		return
	}
	c.flush = c.clock.AfterFunc(after, func() { go c.flushNow() })
}

// flushNow writes the notes. If that fails, it retries later, and the next note returns the error.
func (c *changes) flushNow() {
	c.mu.Lock()
	c.flush = nil
	c.mu.Unlock()
	if err := c.commit(nil); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.flushLater(retryAfter)
	}
}

// commit writes the pending changes and runs extra in the same transaction.
func (c *changes) commit(extra func(*bbolt.Tx) error) error {
	return c.commitThrough(math.MaxUint64, nil, extra)
}

// commitThrough writes all changes up to seq to disk. If that fails, it takes back the change in refused: its caller
// gets an error, so no later transaction may store that change.
func (c *changes) commitThrough(seq uint64, refused *change, extra func(*bbolt.Tx) error) error {
	c.committing.Lock()
	defer c.committing.Unlock()
	c.mu.Lock()
	if c.written >= seq || extra == nil && len(c.waiting) == 0 {
		c.mu.Unlock()
		return nil
	}
	taken, through := maps.Clone(c.waiting), c.seq
	c.mu.Unlock()

	err := c.bolt.Update(func(tx *bbolt.Tx) error { return c.write(tx, taken, through, extra) })

	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = err != nil
	if err != nil {
		if refused != nil {
			c.takeBack(refused)
		}
		return err
	}
	c.written = through
	noted := false
	for id, change := range c.waiting {
		if taken[id] == change {
			delete(c.waiting, id)
		}
		noted = noted || change.Seq > through && (change.noted || change.replaced != nil)
	}
	if !noted && c.notes != nil {
		c.notes.rewind()
	}
	return nil
}

// write writes changes, runs extra, and stores the position.
func (c *changes) write(
	tx *bbolt.Tx, taken map[recordID]*change, through uint64, extra func(*bbolt.Tx) error,
) error {
	for _, change := range taken {
		if err := change.apply(tx); err != nil {
			return err
		}
	}
	if extra != nil {
		if err := extra(tx); err != nil {
			return err
		}
	}
	meta, err := tx.CreateBucketIfNotExists([]byte(metaBucket))
	if err != nil {
		return err
	}
	now := position{Seq: through, Tx: tx.ID()}
	if c.notes == nil {
		now.Tx = 0
	}
	encoded, err := json.Marshal(now)
	if err == nil {
		err = meta.Put([]byte(positionKey), encoded)
	}
	if err == nil {
		err = meta.Put([]byte("schema"), fmt.Append(nil, schema))
	}
	return err
}

// records returns a bucket's records by key, including changes that are not on disk yet.
func (c *changes) records(bucket string) (map[string][]byte, error) {
	c.committing.Lock() // prevents pending changes from being written while the file is read
	defer c.committing.Unlock()
	found := map[string][]byte{}
	err := c.bolt.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucket)).ForEach(func(key, value []byte) error {
			found[string(key)] = bytes.Clone(value)
			return nil
		})
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, change := range c.waiting {
		switch {
		case id.bucket != bucket:
		case change.Record == nil:
			delete(found, id.key)
		default:
			found[id.key] = change.Record
		}
	}
	return found, err
}

// stopChanges writes the pending changes. Notes that cannot be written stay in the notes file.
func (db *DB) stopChanges() error {
	db.mu.Lock()
	db.closed = true
	if db.flush != nil {
		db.flush.Stop()
	}
	waits := len(db.waiting) > 0
	db.mu.Unlock()
	var err error
	if waits {
		err = db.commit(nil)
	}
	if db.notes != nil {
		db.notes.close()
	}
	return err
}
