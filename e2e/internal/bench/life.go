package bench

import (
	"errors"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// errKilled is the panic value with which a driver is killed.
var errKilled = errors.New("the driver was killed")

// life counts the points (starts and ends of operations) that remain before the driver is killed. A driver whose life
// is nil is never killed.
type life struct{ calls int }

func (l *life) step() {
	if l == nil {
		return
	}
	if l.calls--; l.calls < 0 {
		panic(errKilled)
	}
}

// around runs an operation, and may kill the driver before or after it.
func (l *life) around(do func() error) error {
	l.step()
	err := do()
	l.step()
	return err
}

// Survives runs a driver operation, and reports whether it completed before the driver was killed.
func Survives(do func()) (survived bool) {
	defer func() {
		if cause := recover(); cause != nil && cause != any(errKilled) {
			panic(cause)
		}
	}()
	do()
	return true
}

// mortalJournal is a journal that may kill the driver before or after each commit.
type mortalJournal struct {
	executor.Journal
	*life
}

// Save implements executor.Journal.
func (j mortalJournal) Save(attachment *executor.Attachment) error {
	return j.around(func() error { return j.Journal.Save(attachment) })
}

// Note implements executor.Journal.
func (j mortalJournal) Note(attachment *executor.Attachment) error {
	return j.around(func() error { return j.Journal.Note(attachment) })
}

// Delete implements executor.Journal. It is the commit after the last step has been rolled back.
func (j mortalJournal) Delete(sandboxID string) error {
	return j.around(func() error { return j.Journal.Delete(sandboxID) })
}

// mortalHost is a host that may kill the driver before or after the driver moves an RDMA device or restores a device.
type mortalHost struct {
	host.Host
	*life
}

// MoveRDMA implements host.RDMAMoves.
func (h mortalHost) MoveRDMA(netns string, device cnichain.RDMADevice) error {
	return h.around(func() error { return h.Host.MoveRDMA(netns, device) })
}

// ReturnRDMA implements host.RDMAMoves.
func (h mortalHost) ReturnRDMA(netns string, device cnichain.RDMADevice) error {
	return h.around(func() error { return h.Host.ReturnRDMA(netns, device) })
}

// Restore implements host.Devices.
func (h mortalHost) Restore(device cnichain.Device) error {
	return h.around(func() error { return h.Host.Restore(device) })
}
