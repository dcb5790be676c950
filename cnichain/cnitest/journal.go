package cnitest

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// Journal keeps attachments as they would be read back after a restart. It is safe for concurrent use.
type Journal struct {
	mu      sync.Mutex
	records map[string][]byte
	left    map[string]executor.Leftover
	commits int
	full    bool
}

// Fill makes every further commit fail.
func (j *Journal) Fill() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.full = true
}

// Free ends Fill.
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

// Leftovers are those with a record, by key.
func (j *Journal) Leftovers() []executor.Leftover {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := []executor.Leftover{}
	for _, key := range slices.Sorted(maps.Keys(j.left)) {
		list = append(list, j.left[key])
	}
	return list
}

// Commits is how many commits succeeded.
func (j *Journal) Commits() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.commits
}

// Keys are the sandboxes with a record, sorted.
func (j *Journal) Keys() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(maps.Keys(j.records))
}

// Save implements executor.Journal.
func (j *Journal) Save(attachment *executor.Attachment) error {
	data, err := json.Marshal(attachment)
	if err != nil {
		return err
	}
	return j.commit(func() {
		if j.records == nil {
			j.records = map[string][]byte{}
		}
		j.records[attachment.SandboxID] = data
	})
}

// Delete implements executor.Journal.
func (j *Journal) Delete(sandboxID string) error {
	return j.commit(func() { delete(j.records, sandboxID) })
}

// commit makes a change as one transaction: whole, or not at all if the disk is full.
func (j *Journal) commit(change func()) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.full {
		return errors.New("cannot write to the journal: no space left on device")
	}
	j.commits++
	change()
	return nil
}

// Load reads a record back; nil without one.
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
