package executor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

const rdmaStep = `[{name: link, type: host-device, selector: {cel: "true"}, rdma: {}}]`

// withRDMA returns a workbench whose links have RDMA devices, and an attachment for the first link.
func withRDMA(t *testing.T, mode, steps string) (*workbench, *executor.Attachment) {
	w := newWorkbench(t)
	w.node.AddRDMA("mlx5_0", "up0", "0000:01:00.0", mode)
	w.node.AddRDMA("mlx5_1", "up1", "0000:01:00.1", mode)
	return w, attachment(w.plan("c", steps, rdmaDevice(w, "up0", "0000:01:00.0")))
}

// rdmaDevice returns a device as it was when its claim was prepared.
func rdmaDevice(w *workbench, name, address string) cnichain.RootDevice {
	root := device("link", name)
	root.Device.PCIAddress = address
	now, err := w.node.Snapshot(root.Device)
	w.must(err)
	root.Device = now
	return root
}

func (w *workbench) expectRDMA(host, pod []string) {
	w.t.Helper()
	if seen := w.node.RDMAIn(""); !slices.Equal(seen, host) {
		w.t.Errorf("RDMA devices on the host = %q, want %q", seen, host)
	}
	if seen := w.node.RDMAIn(pin); !slices.Equal(seen, pod) {
		w.t.Errorf("RDMA devices in the pod = %q, want %q", seen, pod)
	}
}

func TestRDMADeviceMovesWithItsLink(t *testing.T) {
	w, made := withRDMA(t, cnichain.RDMAExclusive, rdmaStep)
	w.must(w.add(made))
	w.expectRDMA([]string{"mlx5_1"}, []string{"mlx5_0"})
	// The device had number 0. The move freed this number, so it is the lowest free one again.
	if nodes := w.restarted().Steps[0].DeviceNodes; !slices.Equal(nodes,
		[]string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"}) {
		t.Errorf("device nodes = %q, want rdma_cm and uverbs0", nodes)
	}
	w.must(w.executor.Check(context.Background(), made))
	w.must(w.del(w.restarted()))
	w.expect(cleanNode)
	w.expectRDMA([]string{"mlx5_0", "mlx5_1"}, nil)
}

// The recorded device node is the one after the move, not the one from when the claim was prepared.
func TestNumbersOfRDMADevicesChange(t *testing.T) {
	w, made := withRDMA(t, cnichain.RDMAExclusive,
		`[{name: link, type: host-device, selector: {cel: "true"}, rdma: {managementDevices: true}}]`)
	w.node.RemoveRDMA("mlx5_0")
	w.node.AddRDMA("mlx5_2", "up0", "0000:01:00.0", cnichain.RDMAExclusive) // gets number 0
	w.node.RemoveRDMA("mlx5_1")
	w.node.RemoveRDMA("mlx5_2")
	w.node.AddRDMA("other", "", "", cnichain.RDMAExclusive)
	w.node.AddRDMA("mlx5_0", "up0", "0000:01:00.0", cnichain.RDMAExclusive)
	w.node.RemoveRDMA("other")
	w.must(w.add(made))
	if nodes := made.Steps[0].DeviceNodes; !slices.Equal(nodes, []string{"/dev/infiniband/rdma_cm",
		"/dev/infiniband/umad0", "/dev/infiniband/uverbs0"}) {
		t.Errorf("device nodes = %q, want rdma_cm, umad0 and uverbs0", nodes)
	}
}

func TestSharedRDMADeviceStays(t *testing.T) {
	w, made := withRDMA(t, cnichain.RDMAShared, rdmaStep)
	w.must(w.add(made))
	w.expectRDMA([]string{"mlx5_0", "mlx5_1"}, []string{"mlx5_0", "mlx5_1"})
	if nodes := made.Steps[0].DeviceNodes; !slices.Equal(nodes,
		[]string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"}) {
		t.Errorf("device nodes = %q, want rdma_cm and uverbs0", nodes)
	}
	w.node.RemoveRDMA("mlx5_0")
	w.node.AddRDMA("mlx5_0", "up0", "0000:01:00.0", cnichain.RDMAShared) // its module was reloaded
	if err := w.executor.Check(context.Background(), made); !strings.Contains(fmt.Sprint(err),
		"RDMA device mlx5_0 is gone") {
		t.Errorf("Check returned %v, want it to report that mlx5_0 is gone", err)
	}
	w.must(w.del(made))
	w.expect(cleanNode)
}

const filesStep = `[{name: link, type: device-only, selector: {cel: "true"}, rdma: {}}]`

// A step without an interface only exposes the device files to the pod. The interface stays on the host, where it is
// used by other pods and the node.
func TestRDMAWithoutInterface(t *testing.T) {
	w, _ := withRDMA(t, cnichain.RDMAShared, filesStep)
	root := rdmaDevice(w, "up0", "0000:01:00.0")
	root.Device.Exclusive = false
	made := attachment(w.plan("c", filesStep, root))
	w.must(w.add(made))
	w.expectRDMA([]string{"mlx5_0", "mlx5_1"}, []string{"mlx5_0", "mlx5_1"})
	if nodes := w.restarted().Steps[0].DeviceNodes; !slices.Equal(nodes,
		[]string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"}) {
		t.Errorf("device nodes = %q, want rdma_cm and uverbs0", nodes)
	}
	w.must(w.executor.Check(context.Background(), made))
	w.node.RemoveRDMA("mlx5_0")
	if err := w.executor.Check(context.Background(), made); !strings.Contains(fmt.Sprint(err),
		"RDMA device mlx5_0 is gone") {
		t.Errorf("Check returned %v, want it to report that mlx5_0 is gone", err)
	}
	w.must(w.del(w.restarted()))
	w.expect(cleanNode)

	// The node keeps the interface even if the device is exclusive to one claim.
	made = attachment(w.plan("c", filesStep, rdmaDevice(w, "up1", "0000:01:00.1")))
	w.must(w.add(made))
	if device := made.Steps[0].Step.Device; !device.Exclusive || !device.KeepsLink {
		t.Errorf("exclusive = %t, keeps the interface = %t, want both", device.Exclusive, device.KeepsLink)
	}
	w.must(w.del(made))
	w.expect(cleanNode)
}

// If each RDMA device is in a single namespace, a device without an interface is moved on its own. A device whose
// interface would stay on the host is rejected.
func TestRDMADeviceWithoutInterfaceMoves(t *testing.T) {
	w, _ := withRDMA(t, cnichain.RDMAExclusive, filesStep)
	w.node.AddRDMA("mlx5_2", "", "0000:02:00.0", cnichain.RDMAExclusive)
	root := device("link", "pci-0000-02-00-0")
	root.Device.IfName, root.Device.PCIAddress = "", "0000:02:00.0"
	made := attachment(w.plan("c", filesStep, root))
	w.must(w.add(made))
	w.expectRDMA([]string{"mlx5_0", "mlx5_1"}, []string{"mlx5_2"})
	w.must(w.del(w.restarted()))
	w.expect(cleanNode)
	w.expectRDMA([]string{"mlx5_0", "mlx5_1", "mlx5_2"}, nil)

	wantError(t, w.add(attachment(w.plan("c", filesStep, rdmaDevice(w, "up0", "0000:01:00.0")))),
		"the interface stays on the host; use a plugin that moves it")
	w.expectRDMA([]string{"mlx5_0", "mlx5_1", "mlx5_2"}, nil)
}

// The driver is killed at every write to the journal in turn, and a new driver rolls back the attachment. Afterwards,
// every RDMA device is on the host under its original name.
func TestRDMADeviceReturnsAfterEveryCrash(t *testing.T) {
	whole, made := withRDMA(t, cnichain.RDMAExclusive, rdmaStep)
	whole.must(whole.add(made))
	whole.must(whole.del(made))
	for after := range whole.journal.Commits() + whole.journal.Notes() + 1 {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %d writes, namespace ends %v", after, ends), func(t *testing.T) {
				w, made := withRDMA(t, cnichain.RDMAExclusive, rdmaStep)
				w.executor = executor.New(executor.Options{Exec: w.node, Host: w.node, Clock: w.clock,
					Journal: &dyingJournal{Journal: w.journal, left: after}, Dirs: []string{cnitest.PluginDir}})
				func() {
					defer func() { _ = recover() }()
					w.must(w.add(made))
					w.must(w.del(made))
				}()
				record, err := w.journal.Load("sandbox-1")
				w.must(err)
				if record == nil {
					w.expectRDMA([]string{"mlx5_0", "mlx5_1"}, nil)
					return
				}
				if ends {
					w.must(w.node.Unpin(pin))
					w.node.AddHostLink("up0") // the kernel returns hardware
				}
				w.executor = executor.New(executor.Options{Exec: w.node, Host: w.node, Clock: w.clock,
					Journal: w.journal,
					Dirs:    []string{cnitest.PluginDir}})
				w.restart(record)
				w.must(w.del(record))
				w.expectRDMA([]string{"mlx5_0", "mlx5_1"}, nil)
				w.expect(cleanNode)
			})
		}
	}
}

// dyingJournal panics before a commit to simulate the driver being killed.
type dyingJournal struct {
	executor.Journal
	left int
}

func (j *dyingJournal) Save(attachment *executor.Attachment) error {
	j.die()
	return j.Journal.Save(attachment)
}

func (j *dyingJournal) Note(attachment *executor.Attachment) error {
	j.die()
	return j.Journal.Note(attachment)
}

func (j *dyingJournal) Delete(sandbox string) error {
	j.die()
	return j.Journal.Delete(sandbox)
}

func (j *dyingJournal) die() {
	if j.left--; j.left < 0 {
		panic("killed")
	}
}

func TestRDMAThatCannotBeGiven(t *testing.T) {
	for name, test := range map[string]struct {
		mode, step string
		before     func(*workbench, *executor.Attachment)
		want       string
	}{
		"gone since it was prepared": {
			mode: cnichain.RDMAExclusive, step: rdmaStep, want: "it has none; load the RDMA module",
			before: func(w *workbench, _ *executor.Attachment) { w.node.RemoveRDMA("mlx5_0") },
		},
		"list fails": {
			mode: cnichain.RDMAExclusive, step: rdmaStep, want: "no list",
			before: func(w *workbench, _ *executor.Attachment) { w.node.Fail("rdma list", errors.New("no list")) },
		},
		"move fails": {
			mode: cnichain.RDMAExclusive, step: rdmaStep, want: "busy",
			before: func(w *workbench, _ *executor.Attachment) { w.node.Fail("rdma move", errors.New("busy")) },
		},
		"move fails after its effect": {
			mode: cnichain.RDMAExclusive, step: rdmaStep, want: "killed",
			before: func(w *workbench, _ *executor.Attachment) { w.node.Fail("rdma move after", errors.New("killed")) },
		},
		"a plugin without a schema leaves the device on the host": {
			mode: cnichain.RDMAExclusive, want: "the interface stays on the host; use a plugin that moves it",
			step:   `[{name: link, type: mine, selector: {cel: "true"}, rdma: {}}]`,
			before: func(*workbench, *executor.Attachment) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkbench(t)
			w.node.AddRDMA("mlx5_0", "up0", "0000:01:00.0", cnichain.RDMAShared)
			root := rdmaDevice(w, "up0", "0000:01:00.0")
			root.Device.CNIs = []string{"host-device", "mine"}
			made := attachment(w.plan("c", test.step, root))
			w.node.AddRDMA("other", "", "", test.mode)
			test.before(w, made)
			wantError(t, w.add(made), test.want)
			w.node.Fail("rdma list", nil)
			w.expect(cleanNode)
			if seen := w.node.RDMAIn(pin); len(seen) > 0 {
				t.Errorf("RDMA devices in the pod = %q, want none", seen)
			}
		})
	}
}

// macvlan leaves its parent device on the host, so the associated RDMA device must stay there as well.
func TestPluginThatDoesNotMoveItsDevice(t *testing.T) {
	w := newWorkbench(t)
	w.node.AddRDMA("mlx5_0", "up0", "0000:01:00.0", cnichain.RDMAShared)
	made := attachment(w.plan("c", `[{name: link, type: macvlan, selector: {cel: "true"}, rdma: {}}]`,
		rdmaDevice(w, "up0", "0000:01:00.0")))
	w.node.AddRDMA("other", "", "", cnichain.RDMAExclusive) // an administrator has changed the mode
	wantError(t, w.add(made), "the interface stays on the host; use a plugin that moves it")
	w.expect(cleanNode)
	w.expectRDMA([]string{"mlx5_0", "other"}, nil)
}

// If an RDMA module is unloaded while a pod is using its device, the device is quarantined until the module is
// reloaded, and the quarantine states the reason.
func TestRDMADeviceThatDoesNotReturn(t *testing.T) {
	w, made := withRDMA(t, cnichain.RDMAExclusive, rdmaStep)
	w.must(w.add(made))
	w.node.RemoveRDMA("mlx5_0")
	for range 10 {
		_ = w.del(made)
	}
	held := device("link", "up0").Device
	held.PCIAddress = "0000:01:00.0"
	err := w.executor.Quarantined(&held)
	if !strings.Contains(fmt.Sprint(err), "its RDMA device mlx5_0 is not on the host") {
		t.Errorf("Quarantined returned %v, want an error about mlx5_0", err)
	}
	w.expect(cleanNode)
}

// If the kernel initially refuses to return an RDMA device, a later DEL returns it.
func TestReturnThatFails(t *testing.T) {
	w, made := withRDMA(t, cnichain.RDMAExclusive, rdmaStep)
	w.must(w.add(made))
	w.node.Fail("rdma return", errors.New("EBUSY"))
	wantError(t, w.del(made), "EBUSY")
	w.expectRDMA([]string{"mlx5_1"}, []string{"mlx5_0"})
	w.node.Fail("rdma return", nil)
	w.must(w.del(w.restarted()))
	w.expectRDMA([]string{"mlx5_0", "mlx5_1"}, nil)
	w.expect(cleanNode)
}

// After all RDMA modules are reloaded, another pod's RDMA device may have the index and device node that previously
// belonged to this pod's RDMA device.
func TestRDMADeviceWhoseIndexIsAnothers(t *testing.T) {
	w, made := withRDMA(t, cnichain.RDMAShared, rdmaStep)
	w.must(w.add(made))
	w.node.SwapRDMA("mlx5_0", "mlx5_1")
	restarted := w.restarted()
	if err := w.executor.Check(context.Background(), restarted); !strings.Contains(fmt.Sprint(err),
		"RDMA device mlx5_0 is gone") {
		t.Errorf("Check returned %v, want it to report that mlx5_0 is gone", err)
	}
	w.must(w.del(restarted))
	w.expect(cleanNode)
}

// An RDMA device that another process moved away and back has different device nodes, and its old nodes may now belong
// to another pod.
func TestRDMADeviceWithOtherNodes(t *testing.T) {
	w, made := withRDMA(t, cnichain.RDMAExclusive, rdmaStep)
	w.must(w.add(made))
	w.node.RenumberRDMA("mlx5_0", 7)
	if err := w.executor.Check(context.Background(), made); !strings.Contains(fmt.Sprint(err),
		"RDMA device mlx5_0 is gone") {
		t.Errorf("Check returned %v, want it to report that mlx5_0 is gone", err)
	}
	w.must(w.del(made))
	w.expect(cleanNode)
}

// A link that returns from a pod gets a new index if another link uses its old one. The claim's next sandbox still
// starts from the baseline with the old index.
func TestRDMADeviceOfALinkWithAnotherIndex(t *testing.T) {
	w, made := withRDMA(t, cnichain.RDMAExclusive, rdmaStep)
	w.node.AddHostLink("up0")
	w.must(w.add(made))
	w.expectRDMA([]string{"mlx5_1"}, []string{"mlx5_0"})
	w.must(w.del(made))
	w.expectRDMA([]string{"mlx5_0", "mlx5_1"}, nil)
}
