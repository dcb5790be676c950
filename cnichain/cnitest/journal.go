package cnitest

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// Journal is an in-memory journal. It stores attachments in encoded form, so that they are read back as by a restarted
// process. It is safe for concurrent use.
type Journal struct {
	mu sync.Mutex
	// records holds what a restarted process would find, and onDisk what would be left after a power loss.
	records, onDisk map[string][]byte
	left            map[string]executor.Leftover
	commits, notes  int
	full            bool
}

// LosePower discards all notes that are not on disk.
func (j *Journal) LosePower() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = maps.Clone(j.onDisk)
}

// Flush writes all notes to disk, as the real journal does shortly after each note.
func (j *Journal) Flush() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.onDisk = maps.Clone(j.records)
}

// Fill makes every subsequent commit fail.
func (j *Journal) Fill() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.full = true
}

// Free makes commits succeed again after Fill.
func (j *Journal) Free() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.full = false
}

// SaveLeftover implements executor.Journal.
func (j *Journal) SaveLeftover(leftover executor.Leftover) error {
	return j.commit(func() {
		if j.left == nil {
			j.left = map[string]executor.Leftover{}
		}
		j.left[leftover.Key] = leftover
	})
}

// DeleteLeftover implements executor.Journal.
func (j *Journal) DeleteLeftover(key string) error {
	return j.commit(func() { delete(j.left, key) })
}

// Leftovers returns the leftovers in the journal, sorted by key.
func (j *Journal) Leftovers() []executor.Leftover {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := []executor.Leftover{}
	for _, key := range slices.Sorted(maps.Keys(j.left)) {
		list = append(list, j.left[key])
	}
	return list
}

// Commits returns the number of successful writes that waited for the disk.
func (j *Journal) Commits() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.commits
}

// Notes returns the number of successful writes that did not wait for the disk.
func (j *Journal) Notes() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.notes
}

// Keys returns the sorted IDs of the sandboxes that have records.
func (j *Journal) Keys() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(maps.Keys(j.records))
}

// Save implements executor.Journal.
func (j *Journal) Save(attachment *executor.Attachment) error { return j.store(attachment, j.commit) }

// Note implements executor.Journal.
func (j *Journal) Note(attachment *executor.Attachment) error { return j.store(attachment, j.note) }

func (j *Journal) store(attachment *executor.Attachment, write func(func()) error) error {
	data, err := json.Marshal(attachment)
	if err != nil {
		return err
	}
	return write(func() {
		if j.records == nil {
			j.records = map[string][]byte{}
		}
		j.records[attachment.SandboxID] = data
	})
}

// Delete implements executor.Journal.
func (j *Journal) Delete(sandboxID string) error {
	return j.note(func() { delete(j.records, sandboxID) })
}

// commit stores a change together with all notes in one transaction. If the disk is full, it stores nothing.
func (j *Journal) commit(change func()) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.full {
		return errFull
	}
	j.commits++
	change()
	j.onDisk = maps.Clone(j.records)
	return nil
}

// note stores a change without waiting for the disk. When the disk fills up, the real journal starts to reject notes
// after a short time, whereas this one rejects them immediately.
func (j *Journal) note(change func()) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.full {
		return errFull
	}
	j.notes++
	change()
	return nil
}

var errFull = errors.New("cannot write to the journal: no space left on device")

// Load returns a sandbox's record, or nil if there is none.
func (j *Journal) Load(sandboxID string) (*executor.Attachment, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	data, found := j.records[sandboxID]
	if !found {
		return nil, nil
	}
	attachment := &executor.Attachment{}
	return attachment, json.Unmarshal(data, attachment)
}
