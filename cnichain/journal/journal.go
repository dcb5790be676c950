// Package journal stores records durably in one bbolt file. The records hold intentions and results, so that the driver
// can roll back after a crash.
//
// Invariant: a record is either read in full, exactly as written, or reported as damaged. It is never
// read partially.
//
// There are two ways to store a record. Put waits for the disk and is meant for state that must survive a power loss,
// because a step leaves data on a disk. Note does not wait and is meant for state that does not survive a reboot
// anyway, such as links and namespaces. Neither kind of record is lost if the process is killed.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"k8s.io/utils/clock"
)

// schema is the version of the record format. A journal with a newer schema is not opened, whereas records with older
// schemas are read. The version is incremented whenever a rollback needs a new field, since an older driver would write
// the record back without that field. Fields that rollbacks do not need are added without changing the version, even
// though an older driver drops them when it writes a record.
//
//	2: baselines have the boot in which they were taken, VLANs, and the node's configuration;
//	   attachments their namespace's ID.
const schema = 2

// DB is an open journal. It is safe for concurrent use, but can be open in only one process at a time. bbolt locks the
// file with flock(2), so the lock is released when the process exits, even if it is killed.
type DB struct {
	bolt *bbolt.DB
	*changes
}

// Opened is the result of Open.
type Opened struct {
	*DB
	// SetAside is the path to which an unreadable journal was moved, or "" if no journal was moved.
	SetAside string
	// Reason is the error that made the journal unreadable.
	Reason error
	// Replayed is the number of notes from an earlier process that were missing from the file. They have been written
	// in the meantime, or are waiting for disk space.
	Replayed int
	// NotesOff is the reason why the notes file cannot be used, if any. Each note then waits for the disk, which is
	// slower but equally safe.
	NotesOff error
}

// Open opens or creates the journal at path. A journal that is proven to be damaged is set aside and replaced with a
// new one: the driver must start, because otherwise pods on the node could neither start nor terminate. For all other
// problems, Open returns an error and leaves the journal unchanged: another process has the journal open, its schema is
// newer, the disk is read-only, there is no space for a new journal, or no file descriptor is available.
func Open(path string, clock clock.WithDelayedExecution) (Opened, error) {
	opened, err := openFile(path, clock.Now())
	if err != nil {
		return Opened{}, err
	}
	if err := opened.startChanges(path, clock); err != nil {
		return Opened{}, errors.Join(fmt.Errorf("cannot open journal %s: %w", path, err), opened.bolt.Close())
	}
	return opened, nil
}

// openFile is like Open, but ignores notes.
func openFile(path string, now time.Time) (Opened, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return Opened{}, fmt.Errorf("cannot open journal %s: %w", path, err)
	}
	bolt, err := open(path)
	switch {
	case err == nil:
		return Opened{DB: &DB{bolt: bolt}}, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return Opened{}, fmt.Errorf("cannot open journal %s: another driver holds it; only one may run on a node: %w",
			path, err)
	case !errors.Is(err, errDamaged):
		return Opened{}, fmt.Errorf("cannot open journal %s: %w", path, err)
	}
	return replace(path, now, err)
}

// replace creates the new journal before it moves the damaged one, so that there is a journal at all times, even if the
// disk is full.
func replace(path string, now time.Time, reason error) (Opened, error) {
	aside := fmt.Sprintf("%s.unreadable-%s", path, now.UTC().Format("20060102T150405"))
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Opened{}, fmt.Errorf("cannot replace journal %s, which is unreadable (%w): %w", path, reason, err)
	}
	bolt, err := open(fresh)
	if err == nil {
		err = os.Link(path, aside)
	}
	if err == nil { // keep the damaged file under another name for investigation, before it is replaced
		err = os.Rename(fresh, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		if bolt != nil {
			err = errors.Join(err, bolt.Close())
		}
		return Opened{}, fmt.Errorf("cannot replace journal %s, which is unreadable (%w): %w", path, reason, err)
	}
	return Opened{DB: &DB{bolt: bolt}, SetAside: aside, Reason: reason}, nil
}

// syncDir makes a rename durable. Otherwise, a power loss could bring back the damaged journal and lose the newer
// records.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

var (
	errNewer   = errors.New("it was written by a newer driver; run that version, or a newer one")
	errDamaged = errors.New("damaged")
)

// open opens a file and checks it completely. bbolt panics on certain kinds of damage. Since bbolt maps the file into
// memory, a file that is too short for its pages causes faults.
func open(path string) (bolt *bbolt.DB, err error) {
	// This setting applies only to this goroutine, and only until this function returns. Anywhere else, a fault is a
	// bug and must crash the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if damage := recover(); damage != nil {
			err = fmt.Errorf("%w: %v", errDamaged, damage)
		}
		if err != nil && bolt != nil {
			_ = bolt.Close()
			bolt = nil
		}
	}()
	// bbolt treats an empty file as a new file, and returns no specific error if a file is shorter than its first
	// pages.
	if info, statErr := os.Stat(path); statErr == nil && info.Mode().IsRegular() &&
		info.Size() < int64(2*os.Getpagesize()) {
		return nil, fmt.Errorf("%w: the file has %d bytes", errDamaged, info.Size())
	}
	// Timeout limits the wait for the lock, which a driver that is being replaced may still hold briefly.
	bolt, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) ||
		errors.Is(err, bolterrors.ErrVersionMismatch) {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	if err := bolt.View(check); err != nil {
		return bolt, err
	}
	return bolt, checkSchema(bolt)
}

// check returns an error for damage that would cause bbolt to crash later: bbolt maps the file into memory, and if it
// reads a page beyond the end of the file, the process is killed by a signal.
func check(tx *bbolt.Tx) error {
	info, err := os.Stat(tx.DB().Path())
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() { // Check reads in a separate goroutine, where a fault cannot be caught
		return fmt.Errorf("%w: the file has %d bytes, its pages need %d", errDamaged, info.Size(), tx.Size())
	}
	var first error
	for err := range tx.Check() {
		if first == nil {
			first = fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	return first
}

// checkSchema rejects journals written by a newer driver.
func checkSchema(bolt *bbolt.DB) error {
	version, err := storedSchema(bolt)
	if err == nil && version > schema {
		err = fmt.Errorf("schema %d, this driver reads up to %d: %w", version, schema, errNewer)
	}
	return err
}

// storedSchema returns the file's schema, or 0 if the file is new.
func storedSchema(bolt *bbolt.DB) (version int, err error) {
	err = bolt.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(metaBucket))
		if meta == nil {
			return nil
		}
		if err := json.Unmarshal(meta.Get([]byte("schema")), &version); err != nil {
			return fmt.Errorf("%w: schema version: %w", errDamaged, err)
		}
		return nil
	})
	return version, err
}

// metaBucket is the name of the bucket that contains the file's schema and [position].
const metaBucket = "meta"

// Close writes pending notes and closes the journal. Notes that cannot be written are left for the next process.
func (db *DB) Close() error { return errors.Join(db.stopChanges(), db.bolt.Close()) }

// Bucket stores records of one type by key. Records are stored as JSON, so their field names must stay compatible
// across driver versions.
type Bucket[T any] struct {
	db   *DB
	name []byte
}

// NewBucket returns the bucket with the given name, and creates it if necessary.
func NewBucket[T any](db *DB, name string) (*Bucket[T], error) {
	missing := false
	err := db.bolt.View(func(tx *bbolt.Tx) error {
		missing = tx.Bucket([]byte(name)) == nil
		return nil
	})
	if err == nil && missing {
		err = db.commit(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists([]byte(name))
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot create journal bucket %s: %w", name, err)
	}
	return &Bucket[T]{db: db, name: []byte(name)}, nil
}

// envelope is the format of a stored record. Checksum covers Payload as stored in the file, since bbolt verifies the
// structure of its pages but not their contents.
type envelope struct {
	Schema   int             `json:"schema"`
	Checksum uint32          `json:"crc32c"`
	Payload  json.RawMessage `json:"payload"`
}

func checksum(payload []byte) uint32 { return extendChecksum(0, payload) }

// extendChecksum returns the checksum of data appended to earlier data, where sum is the checksum of the earlier data.
func extendChecksum(sum uint32, data []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), data)
}

// encode returns a record in the file's format, an [envelope].
func encode[T any](record T) ([]byte, error) {
	payload, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(struct {
		Schema   int    `json:"schema"`
		Checksum uint32 `json:"crc32c"`
	}{schema, checksum(payload)})
	if err != nil {
		return nil, err
	}
	return withField(head, "payload", payload), nil
}

// withField appends a field to a JSON object. The value must be output from the JSON library. Passing it through
// json.Marshal again would parse it, which takes longer than encoding it, and a pod's record is written before each
// step.
func withField(object []byte, name string, value []byte) []byte {
	whole := make([]byte, 0, len(object)+len(name)+len(value)+len(`,"":}`))
	whole = append(whole, object[:len(object)-1]...)
	whole = append(whole, `,"`...)
	whole = append(whole, name...)
	whole = append(whole, `":`...)
	whole = append(whole, value...)
	return append(whole, '}')
}

// Put stores a record. When Put returns nil, the record and all earlier notes are on disk.
func (b *Bucket[T]) Put(key string, record T) error { return b.write(key, record, b.db.put) }

// Note stores a record that does not have to survive a reboot. When Note returns nil, the record will survive a crash
// of the process. It is written to disk soon afterwards, but no caller waits for that: Note writes only to memory,
// whereas Put waits for the disk.
func (b *Bucket[T]) Note(key string, record T) error { return b.write(key, record, b.db.note) }

func (b *Bucket[T]) write(key string, record T, store func(*change) error) error {
	encoded, err := encode(record)
	if err != nil {
		return fmt.Errorf("cannot write %s %s to the journal: %w", b.name, key, err)
	}
	if err := store(&change{Bucket: string(b.name), Key: key, Record: encoded}); err != nil {
		return fmt.Errorf("cannot write %s %s to the journal (is the disk full or read-only?): %w", b.name, key, err)
	}
	return nil
}

// Delete removes a record. It is not an error if the record does not exist. When Delete returns nil, the removal is on
// disk.
func (b *Bucket[T]) Delete(key string) error { return b.remove(key, b.db.put) }

// NoteDeleted removes a record with the same guarantees as [Bucket.Note].
func (b *Bucket[T]) NoteDeleted(key string) error { return b.remove(key, b.db.note) }

func (b *Bucket[T]) remove(key string, store func(*change) error) error {
	if err := store(&change{Bucket: string(b.name), Key: key}); err != nil {
		return fmt.Errorf("cannot delete %s %s from the journal: %w", b.name, key, err)
	}
	return nil
}

// Damaged describes a record that cannot be read.
type Damaged struct {
	Bucket, Key string
	Err         error
}

// All returns all readable records by key, along with the unreadable ones.
func (b *Bucket[T]) All() (map[string]T, []Damaged, error) {
	records := map[string]T{}
	var damaged []Damaged
	stored, err := b.db.records(string(b.name))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read %s from the journal: %w", b.name, err)
	}
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		record, err := decode[T](stored[key])
		if err != nil { // a damaged record must not hide the others
			damaged = append(damaged, Damaged{Bucket: string(b.name), Key: key, Err: err})
		} else {
			records[key] = record
		}
	}
	return records, damaged, nil
}

// decode parses a record. If the record's schema is newer than this program's, it returns a specific error. It checks
// the schema before the checksum: a newer schema means that the driver was downgraded, and such a record must not be
// treated as damaged and discarded.
func decode[T any](value []byte) (T, error) {
	var record T
	var stored envelope
	if err := json.Unmarshal(value, &stored); err != nil {
		return record, err
	}
	if stored.Schema > schema {
		return record, fmt.Errorf("schema %d: %w", stored.Schema, errNewer)
	}
	if checksum(stored.Payload) != stored.Checksum {
		return record, errors.New("checksum does not match")
	}
	return record, json.Unmarshal(stored.Payload, &record)
}
