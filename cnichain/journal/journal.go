// Package journal stores records durably in one bbolt file: intentions and results, so that the driver can roll back
// after a crash.
//
// The rule of this package: a record is either read back completely, as it was written, or reported as damaged; it is
// never partial.
//
// There are two ways to store one. Put waits for the disk: it is for state that must survive a power loss, because it
// leaves data on a disk. Note does not wait: it is for state that ends with the machine, such as links and namespaces.
// A killed process loses neither.
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

// schema is the version of the records' form. A journal of a newer schema is not opened. It is raised whenever a
// rollback needs a new field: an older driver would write the record back without it. Records of older schemas are
// read. Fields that a rollback does not need are added without a new schema: an older driver drops them when it writes
// a record.
//
//	2: baselines have the boot in which they were taken, VLANs, and the node's configuration;
//	   attachments their namespace's ID.
const schema = 2

// DB is an open journal. It is safe for concurrent use; another process can't open it at the same time. bbolt locks the
// file with flock(2), which ends with the process, however that ends.
type DB struct {
	bolt *bbolt.DB
	*changes
}

// Opened is the result of Open.
type Opened struct {
	*DB
	// SetAside is where a journal that could not be read was moved, "" if there was none.
	SetAside string
	// Reason is why it could not be read.
	Reason error
	// Replayed is how many notes of an earlier process were not in the file yet. They are now, or wait for room.
	Replayed int
	// NotesOff is why notes can't be kept beside the file: each waits for the disk then, which is slower, and as safe.
	NotesOff error
}

// Open opens or makes the journal at path. One that is proven damaged is set aside and a new one is made: the driver
// must come up, or the node's pods neither start nor end. Everything else (another process holds it, a newer schema, a
// read-only disk, one without room for a new journal, no file descriptors) is an error, and the journal stays where it
// is.
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

// openFile is Open without the notes.
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

// replace makes a new journal before it moves the damaged one: in between, or if the disk is full, there is one.
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
	if err == nil { // the damaged file is replaced only once it has its other name: it is all that can be examined
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

// syncDir makes a rename durable: otherwise a power loss could bring the damaged journal back over newer records.
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

// open opens a file and checks it whole. bbolt panics on some damage, and a file that is shorter than its pages faults,
// since it is mapped into memory.
func open(path string) (bolt *bbolt.DB, err error) {
	// This holds for one goroutine, and only in here: elsewhere a fault is one of the program, and must end it.
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
	// bbolt takes an empty file for a new one, and has no name for the error of one that is shorter than its first
	// pages.
	if info, statErr := os.Stat(path); statErr == nil && info.Mode().IsRegular() &&
		info.Size() < int64(2*os.Getpagesize()) {
		return nil, fmt.Errorf("%w: the file has %d bytes", errDamaged, info.Size())
	}
	// Timeout is for the lock. A driver that is being replaced may hold it for a moment longer.
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

// check reports damage that bbolt would answer with a crash later: it maps the file, and reading a page behind its end
// ends the process with a signal.
func check(tx *bbolt.Tx) error {
	info, err := os.Stat(tx.DB().Path())
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() { // Check reads in a goroutine of its own, where a fault can't be caught
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

// checkSchema refuses a journal that a newer driver has written.
func checkSchema(bolt *bbolt.DB) error {
	version, err := storedSchema(bolt)
	if err == nil && version > schema {
		err = fmt.Errorf("schema %d, this driver reads up to %d: %w", version, schema, errNewer)
	}
	return err
}

// storedSchema is the schema that the file was stamped with; 0 if it is new.
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

// metaBucket has the schema, and how far the file is: see [position].
const metaBucket = "meta"

// Close writes pending notes, and closes the journal. The next process finds notes that could not be written.
func (db *DB) Close() error { return errors.Join(db.stopChanges(), db.bolt.Close()) }

// Bucket keeps records of one type by key. A record is stored as JSON, so that its names are a contract between
// versions of the driver.
type Bucket[T any] struct {
	db   *DB
	name []byte
}

// NewBucket returns the bucket of a name, making it if need be.
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
		return nil, fmt.Errorf("cannot make journal bucket %s: %w", name, err)
	}
	return &Bucket[T]{db: db, name: []byte(name)}, nil
}

// envelope is the form of a stored record. Checksum covers Payload as stored in the file: bbolt verifies the structure
// of its pages, not their content.
type envelope struct {
	Schema   int             `json:"schema"`
	Checksum uint32          `json:"crc32c"`
	Payload  json.RawMessage `json:"payload"`
}

func checksum(payload []byte) uint32 { return extendChecksum(0, payload) }

// extendChecksum returns the checksum of data with the checksum sum, followed by further data.
func extendChecksum(sum uint32, data []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), data)
}

// encode is the form of a record in the file, an [envelope].
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

// withField appends a field to a JSON object. The value is output of the JSON library, which would otherwise parse it
// again; that takes longer than encoding it. A pod's record is written before each step.
func withField(object []byte, name string, value []byte) []byte {
	whole := make([]byte, 0, len(object)+len(name)+len(value)+len(`,"":}`))
	whole = append(whole, object[:len(object)-1]...)
	whole = append(whole, `,"`...)
	whole = append(whole, name...)
	whole = append(whole, `":`...)
	whole = append(whole, value...)
	return append(whole, '}')
}

// Put stores a record; when it returns nil the record is on disk, and with it every note that was made before.
func (b *Bucket[T]) Put(key string, record T) error { return b.write(key, record, b.db.put) }

// Note stores a record for as long as the machine runs: when it returns nil the record survives a crash of the process.
// On disk it is soon after, without anybody waiting for that. It costs a write to memory, where Put waits for the disk.
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

// Delete removes a record; a missing record is not an error. When it returns nil, the removal is on disk.
func (b *Bucket[T]) Delete(key string) error { return b.remove(key, b.db.put) }

// NoteDeleted removes a record as [Bucket.Note] stores one.
func (b *Bucket[T]) NoteDeleted(key string) error { return b.remove(key, b.db.note) }

func (b *Bucket[T]) remove(key string, store func(*change) error) error {
	if err := store(&change{Bucket: string(b.name), Key: key}); err != nil {
		return fmt.Errorf("cannot delete %s %s from the journal: %w", b.name, key, err)
	}
	return nil
}

// Damaged is a record that can't be read.
type Damaged struct {
	Bucket, Key string
	Err         error
}

// All returns every record, by key, and the unreadable ones.
func (b *Bucket[T]) All() (map[string]T, []Damaged, error) {
	records := map[string]T{}
	var damaged []Damaged
	stored, err := b.db.records(string(b.name))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read %s from the journal: %w", b.name, err)
	}
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		record, err := decode[T](stored[key])
		if err != nil { // one damaged record does not hide the others
			damaged = append(damaged, Damaged{Bucket: string(b.name), Key: key, Err: err})
		} else {
			records[key] = record
		}
	}
	return records, damaged, nil
}

// decode reads a record. A schema that is newer than this program's is an error of its own, told before the checksum:
// the driver was downgraded, and must not take the record for damaged and throw it away.
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
