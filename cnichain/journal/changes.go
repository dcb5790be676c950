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

// flushAfter is how long a note waits for the disk, so that the notes of one pod, and of concurrent pods, share a
// commit. retryAfter is the delay after a failed write.
const (
	flushAfter = 20 * time.Millisecond
	retryAfter = time.Second
)

// change is a record that was stored or, without Record, deleted.
type change struct {
	// Seq orders the changes of a journal, over all of its processes.
	Seq    uint64          `json:"seq"`
	Bucket string          `json:"bucket"`
	Key    string          `json:"key"`
	Record json.RawMessage `json:"record,omitempty"`

	noted bool
	// replaced is the change of the record that waited for the disk before, unless this one is noted: notes are never
	// reverted.
	replaced *change
}

type recordID struct{ bucket, key string }

// encode is the form of a note.
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

// changes are what happened to a journal, and how much of it is on disk.
//
// The rule: the disk always has a beginning of what happened. Every transaction takes all changes that wait, so that a
// machine which loses its power forgets the newest changes, and never one without those after it. A process that is
// killed forgets nothing: each change is either on disk or in the file of notes.
type changes struct {
	bolt  *bbolt.DB
	clock clock.WithDelayedExecution

	// committing is held for a transaction, and taken before mu. Who waits for it meanwhile finds that another has
	// written his change with his own: one wait for the disk serves many pods.
	committing sync.Mutex

	mu           sync.Mutex
	seq, written uint64
	waiting      map[recordID]*change
	notes        *noteFile // nil if there can't be one
	failing      bool      // the last transaction failed
	flush        clock.Timer
	closed       bool
}

// position is the position of the file. Tx is the number of the transaction that has written it: if the file's last
// transaction has another number, a driver without notes has written since, and the notes are older than the file. It
// is 0 if this process keeps no notes: an earlier one may have left notes that it could not read.
type position struct {
	Seq uint64 `json:"seq"`
	Tx  int    `json:"tx"`
}

const positionKey = "position"

// startChanges takes over what an earlier process has noted and could not write, and writes it. If it can't, the notes
// stay where they are and are read from there: a driver that has come up can detach pods, and a full disk keeps it from
// nothing else.
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
	notes, found, err := openNotes(path + ".notes") // bbolt's path is another where the journal was replaced
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
		return nil // else the next process would take what this one notes for older than the file
	}
	err = db.commit(func(*bbolt.Tx) error { return nil }) // the schema and the position, at least
	if err == nil {
		return nil
	}
	if version != schema {
		if notes != nil {
			notes.close()
		}
		return err
	}
	// Nothing is noted until a transaction has succeeded, so no note stands before the position that it needs.
	db.mu.Lock()
	defer db.mu.Unlock()
	db.flushLater(retryAfter)
	return nil
}

// storedPosition returns the position of the file, and whether no other driver has written since.
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

// put stores a change on disk.
func (c *changes) put(next *change) error {
	c.mu.Lock()
	c.stage(next)
	c.mu.Unlock()
	return c.commitThrough(next.Seq, next, nil)
}

// note stores a change for as long as the machine runs.
func (c *changes) note(next *change) error {
	c.mu.Lock()
	next.Seq, next.noted = c.seq+1, true
	// A disk that can't be written must be noticed by who could still do something else.
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

// stage makes a change the newest. The caller holds mu.
func (c *changes) stage(next *change) {
	c.seq++
	next.Seq = c.seq
	if !next.noted {
		next.replaced = c.waiting[next.id()]
	}
	c.waiting[next.id()] = next
}

// takeBack removes a change that could not be written from the changes of its record. The caller holds mu.
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

// flushLater has notes written. The caller holds mu.
func (c *changes) flushLater(after time.Duration) {
	if c.flush != nil || c.closed {
		return
	}
	c.flush = c.clock.AfterFunc(after, func() { go c.flushNow() })
}

// flushNow writes notes, and retries later after a failure, which the next note reports.
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

// commit writes what waits, and what else is to be in the transaction.
func (c *changes) commit(extra func(*bbolt.Tx) error) error {
	return c.commitThrough(math.MaxUint64, nil, extra)
}

// commitThrough writes all changes up to one to disk. If that fails, it reverts refused: its caller gets an error, and
// no later transaction may store it.
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

// write writes changes, what else is to be in the transaction, and the position.
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

// records are the changes of a bucket that are stored, on disk or not, by key.
func (c *changes) records(bucket string) (map[string][]byte, error) {
	c.committing.Lock() // what waits stays so while the file is read
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

// stopChanges writes what waits. Notes that can't be written stay in their file.
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
