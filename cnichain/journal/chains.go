package journal

import (
	"fmt"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// Chains stores the records of an executor. It implements [executor.Journal].
type Chains struct {
	attachments *Bucket[executor.Attachment]
	leftovers   *Bucket[executor.Leftover]
}

var _ executor.Journal = &Chains{}

// NewChains returns the Chains stored in a journal.
func NewChains(db *DB) (*Chains, error) {
	attachments, err := NewBucket[executor.Attachment](db, "attachments")
	if err != nil {
		return nil, err
	}
	leftovers, err := NewBucket[executor.Leftover](db, "leftovers")
	if err != nil {
		return nil, err
	}
	return &Chains{attachments: attachments, leftovers: leftovers}, nil
}

// Load loads the records left behind by an earlier process into an executor and returns the attachments by key. It also
// returns the keys of unreadable records.
func (c *Chains) Load(runner *executor.Executor) (map[string]*executor.Attachment, []Damaged, error) {
	attachments, damaged, err := c.attachments.All()
	if err != nil {
		return nil, nil, err
	}
	leftovers, damagedLeftovers, err := c.leftovers.All()
	if err != nil {
		return nil, nil, err
	}
	loaded := make(map[string]*executor.Attachment, len(attachments))
	for key := range attachments {
		attachment := attachments[key]
		loaded[key] = &attachment
	}
	for key, leftover := range leftovers {
		if len(leftover.Attachment.Steps) != 1 {
			damagedLeftovers = append(damagedLeftovers, Damaged{Bucket: "leftovers", Key: key,
				Err: fmt.Errorf("has %d steps, want 1", len(leftover.Attachment.Steps))})
			delete(leftovers, key)
		}
	}
	runner.Load(loaded, leftovers)
	return loaded, append(damaged, damagedLeftovers...), nil
}

// Save implements executor.Journal.
func (c *Chains) Save(attachment *executor.Attachment) error {
	return c.attachments.Put(attachment.SandboxID, *attachment)
}

// Note implements executor.Journal.
func (c *Chains) Note(attachment *executor.Attachment) error {
	return c.attachments.Note(attachment.SandboxID, *attachment)
}

// Delete implements executor.Journal. If a record reappears after a power loss, there is nothing left to roll back for
// it, and later uses of its devices are never on disk without this deletion.
func (c *Chains) Delete(sandboxID string) error { return c.attachments.NoteDeleted(sandboxID) }

// SaveLeftover implements executor.Journal.
func (c *Chains) SaveLeftover(leftover executor.Leftover) error {
	return c.leftovers.Put(leftover.Key, leftover)
}

// DeleteLeftover implements executor.Journal.
func (c *Chains) DeleteLeftover(key string) error { return c.leftovers.Delete(key) }
