package chainrun

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bolterrors "go.etcd.io/bbolt/errors"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
)

// DefaultState is the default directory for the journal.
const DefaultState = "/var/lib/netdra"

// RunJournal stores runs on disk, so that they survive the process. Only one process can open the journal at a time,
// which prevents two processes from undoing the same run. The lock is held on the database file, and the kernel
// releases it when the process dies.
type RunJournal struct {
	dir    string
	Opened journal.Opened
	Chains *journal.Chains
	Runs   *journal.Bucket[RunRecord]
}

// RunRecord describes a run. It is written before the run changes anything, and deleted once the run has been
// completely undone.
type RunRecord struct {
	Topology string `json:"topology"`
	// Pin is the path at which the network namespace remains accessible.
	Pin string `json:"pin"`
	// Dirs are the directories that contain the CNI plugins used in the run.
	Dirs      []string  `json:"dirs"`
	StartedAt time.Time `json:"startedAt"`
	// Before is the state of the machine's own namespace before the run.
	Before view.View `json:"before"`
}

func journalPath(dir string) string { return filepath.Join(dir, "journal.db") }

// OpenRunJournal opens the journal in a directory, and creates it if necessary. If the journal file is unreadable,
// OpenRunJournal moves it out of the way and returns an error only once, because an error on every call would block the
// user.
func OpenRunJournal(dir string, clock clock.WithDelayedExecution) (*RunJournal, error) {
	opened, err := journal.Open(journalPath(dir), clock)
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("cannot open the journal in %s: another netdra is using it; "+
			"wait until it ends, or set another --state", dir)
	}
	if err != nil {
		return nil, err
	}
	s := &RunJournal{dir: dir, Opened: opened}
	if opened.SetAside != "" {
		return nil, errors.Join(fmt.Errorf("the journal of earlier runs could not be read (%w) and was moved to %s: "+
			"their leftovers are unknown, "+
			"look for network namespaces and links named netdra-...; the next call starts a new journal", opened.Reason,
			opened.SetAside), s.Close())
	}
	if s.Chains, err = journal.NewChains(opened.DB); err == nil {
		s.Runs, err = journal.NewBucket[RunRecord](opened.DB, "runs")
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close closes the journal, which allows another process to open it.
func (s *RunJournal) Close() error { return s.Opened.Close() }

// lock returns the path of a file that is locked while a CNI plugin is running, so that undo can wait for plugins from
// a killed run. The database lock is not sufficient for this: it is released when netdra exits, but a plugin may
// outlive netdra.
func (s *RunJournal) lock() string { return filepath.Join(s.dir, "cni.lock") }

func (s *RunJournal) undoHint() string {
	if s.dir == cmp.Or(os.Getenv("NETDRA_STATE"), DefaultState) {
		return "netdra chain undo"
	}
	return "netdra chain undo --state " + s.dir
}

// earlierRuns contains the records of earlier runs that are still in the journal.
type earlierRuns struct {
	attachments map[string]*executor.Attachment
	leftovers   []executor.Leftover
	runs        map[string]RunRecord
	damaged     []journal.Damaged
}

// load reads the records of earlier runs and passes the leftovers to the executor, which can retry them.
func (s *RunJournal) load(executor *executor.Executor) (*earlierRuns, error) {
	attachments, damaged, err := s.Chains.Load(executor)
	if err != nil {
		return nil, err
	}
	runs, damagedRuns, err := s.Runs.All()
	if err != nil {
		return nil, err
	}
	return &earlierRuns{attachments: attachments, leftovers: executor.Leftovers(), runs: runs,
		damaged: append(damaged, damagedRuns...)}, nil
}

// keys returns the keys of the runs that have not been undone, oldest first. If a run has no attachment, it was killed
// before its first step or after its last one. If an attachment has no run, the run's record is damaged.
func (e *earlierRuns) keys() []string {
	started := map[string]time.Time{}
	for key, run := range e.runs {
		started[key] = run.StartedAt
	}
	for key, attachment := range e.attachments {
		started[key] = attachment.CreatedAt
	}
	keys := make([]string, 0, len(started))
	for key := range started {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(started[a].Compare(started[b]), cmp.Compare(a, b)) })
	return keys
}

// dirs returns the plugin directories of all runs, because undo must use the same plugins as ADD.
func (e *earlierRuns) dirs() []string {
	var dirs []string
	for _, key := range e.keys() {
		for _, dir := range e.runs[key].Dirs {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// checkUndone returns an error if any earlier run has not been completely undone. In that case, a device might be
// missing, or a name might already be in use.
func (e *earlierRuns) checkUndone(hint string) error {
	var lines []string
	for _, key := range e.keys() {
		lines = append(lines, e.describe(key))
	}
	for i := range e.leftovers {
		lines = append(lines, fmt.Sprintf("%s of %s could not be undone: %s", e.leftovers[i].Step().Title(),
			e.leftovers[i].Attachment.SandboxID, e.leftovers[i].Reason))
	}
	for _, damaged := range e.damaged {
		lines = append(lines, fmt.Sprintf("the record %s cannot be read: %v", damaged.Key, damaged.Err))
	}
	if len(lines) == 0 {
		return nil
	}
	return exit.Refusef("an earlier run is not undone, so nothing was run; first run \"%s\"\n  %s", hint,
		strings.Join(lines, "\n  "))
}

func (e *earlierRuns) describe(key string) string {
	run := e.runs[key]
	text := fmt.Sprintf("%s, topology %s, of %s", key, run.Topology, printer.Time(run.StartedAt))
	attachment := e.attachments[key]
	switch {
	case attachment == nil:
		return text + ": nothing is attached"
	case attachment.Phase == executor.PhaseReady:
		return text + ": attached"
	case attachment.Phase == executor.PhaseAttaching:
		return text + ": was interrupted while attaching"
	}
	return text + ": was interrupted while undoing, or could not be undone"
}
