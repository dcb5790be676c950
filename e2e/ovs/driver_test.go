package ovs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// driver is what the project's driver has of chains: an executor and a journal.
type driver struct {
	*bench
	executor *executor.Executor
	db       journal.Opened
	path     string
	left     map[string]*executor.Attachment // of an earlier driver
}

func newDriver(b *bench) *driver {
	b.Helper()
	d := &driver{bench: b, path: filepath.Join(b.TempDir(), "journal.db")}
	d.begin(nil)
	b.Cleanup(func() { _ = d.db.Close() })
	return d
}

// errKilled is what a driver panics with that is killed.
var errKilled = errors.New("killed")

// mortalJournal kills the driver before the commit of which life says so, and after it.
type mortalJournal struct {
	executor.Journal
	life *int
}

func (j mortalJournal) step() {
	if j.life == nil {
		return
	}
	if *j.life--; *j.life < 0 {
		panic(errKilled)
	}
}

// Save implements executor.Journal.
func (j mortalJournal) Save(attachment *executor.Attachment) error {
	j.step()
	err := j.Journal.Save(attachment)
	j.step()
	return err
}

// Delete implements executor.Journal: that the last step is undone is committed so.
func (j mortalJournal) Delete(sandboxID string) error {
	j.step()
	err := j.Journal.Delete(sandboxID)
	j.step()
	return err
}

// begin begins with what is in the journal. Life is how many commits the driver lives; nil for ever.
func (d *driver) begin(life *int) {
	d.Helper()
	var err error
	d.db, err = journal.Open(d.path, time.Now())
	d.must(err)
	chains, err := journal.NewChains(d.db.DB)
	d.must(err)
	d.executor = executor.New(executor.Options{
		Exec: executor.PluginExec{Lock: d.path + ".cni"}, Host: host.Linux{},
		Journal: mortalJournal{Journal: chains, life: life}, Dirs: filepath.SplitList(os.Getenv("CNI_PATH")),
		StepTimeout: patience, GiveUpAttempts: 4,
	})
	d.left, _, err = chains.Load(d.executor)
	d.must(err)
}

// restart ends the driver, and makes another on its journal.
func (d *driver) restart(life *int) {
	d.Helper()
	d.must(d.db.Close())
	d.begin(life)
}

// pod is a pod with a claim for a device.
type pod struct {
	*driver
	path       string
	attachment *executor.Attachment
}

// prepare makes a pod, and prepares a claim for it: the first step of the topology gets a link of the machine.
func (d *driver) prepare(name, link, steps string, exclusive bool) *pod {
	d.Helper()
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = name
	d.must(yaml.UnmarshalStrict([]byte(steps), &topology.Spec.Steps))
	root := &topology.Spec.Steps[0]
	root.Selector = &v1alpha1.StepSelector{CEL: "true"}
	device := cnichain.Device{
		Pool: "node", Name: link, Request: root.Name, IfName: link, Exclusive: exclusive, CNIs: []string{root.Type},
		Attributes: map[string]any{"ifName": link},
	}
	if target, err := filepath.EvalSymlinks("/sys/class/net/" + link + "/device"); err == nil {
		device.PCIAddress = filepath.Base(target)
		device.Attributes["pciAddress"] = device.PCIAddress
		if pf, err := os.Readlink(filepath.Join(target, "physfn")); err == nil {
			device.PF = filepath.Base(pf)
		}
	}
	device, err := host.Linux{}.Snapshot(device)
	d.must(err)
	plugins, err := d.executor.Probe(context.Background(), cnichain.Types(topology))
	d.must(err)
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: cnichain.Claim{Namespace: "ns", Name: name, UID: name}, Node: "node", Schemas: cnichain.DefaultSchemas(),
		Plugins: plugins, Devices: []cnichain.RootDevice{{Step: root.Name, Device: device}},
	})
	d.must(problems.ToAggregate())
	p := &pod{driver: d, path: cnitest.NewPod(d.T, name)}
	p.attachment = executor.NewAttachment("sandbox-"+name,
		executor.Pod{Namespace: "ns", Name: name, UID: "uid-" + name}, []cnichain.Plan{*plan})
	p.attachment.Pin = "/run/netns/dra-" + name
	d.Cleanup(func() { _ = host.Linux{}.Unpin(p.attachment.Pin) })
	return p
}

func (p *pod) add() error {
	return p.executor.Add(context.Background(), p.attachment, p.path, "node")
}

func (p *pod) del() error { return p.executor.Del(context.Background(), p.attachment) }

// enter runs in a thread that enters the pod's namespace, and ends with it.
func (p *pod) enter(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		file, err := os.Open(p.path)
		if err == nil {
			err = errors.Join(unix.Setns(int(file.Fd()), unix.CLONE_NEWNET), file.Close())
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// links describes what was added to the pod.
func (p *pod) links() (lines []string) {
	p.Helper()
	namespace, err := netns.GetFromPath(p.path)
	p.must(err)
	defer func() { _ = namespace.Close() }() // was only read
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	p.must(err)
	defer handle.Close()
	links, err := handle.LinkList()
	p.must(err)
	for _, link := range links {
		attrs := link.Attrs()
		if attrs.Name != "lo" && attrs.Name != "eth0" {
			lines = append(lines, fmt.Sprintf("%s %s mtu %d up %v", attrs.Name, link.Type(), attrs.MTU,
				attrs.Flags&net.FlagUp != 0))
		}
	}
	slices.Sort(lines)
	return lines
}

// destroy ends the pod's namespace under the driver: nothing holds it any more.
func (p *pod) destroy() {
	p.Helper()
	cnitest.RemovePod(p.path)
	p.must(host.Linux{}.Unpin(p.attachment.Pin))
}

const (
	port = "4242"
	// interval is between two messages; silence is how many are sent before it is believed that none arrives.
	interval = 100 * time.Millisecond
	silence  = 25
)

// crosses sends messages from one pod to an address of another until one arrives, and says whether one did.
func (p *pod) crosses(target *pod, address string, messages int) (bool, error) {
	var receiver net.PacketConn
	err := target.enter(func() (err error) {
		receiver, err = net.ListenPacket("udp4", net.JoinHostPort(address, port))
		return err
	})
	if err != nil {
		return false, err
	}
	defer func() { _ = receiver.Close() }() // is only read
	var sender net.Conn
	err = p.enter(func() (err error) {
		sender, err = net.Dial("udp4", net.JoinHostPort(address, port))
		return err
	})
	if err != nil {
		return false, err
	}
	defer func() { _ = sender.Close() }() // what was sent was sent
	buffer := make([]byte, 16)
	for range messages {
		_, _ = sender.Write([]byte("x")) // that nobody is there yet is an error of the one before
		if err := receiver.SetReadDeadline(time.Now().Add(interval)); err != nil {
			return false, err
		}
		if _, _, err = receiver.ReadFrom(buffer); err == nil {
			return true, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return false, err
		}
	}
	return false, nil
}

// reaches expects that messages come through, sooner or later.
func (p *pod) reaches(target *pod, address string) {
	p.Helper()
	arrived, err := p.crosses(target, address, int(patience/interval))
	p.must(err)
	if !arrived {
		p.Fatalf("nothing comes through from %s to %s", p.path, address)
	}
}

// isolated expects that no message comes through.
func (p *pod) isolated(target *pod, address string) {
	p.Helper()
	arrived, err := p.crosses(target, address, silence)
	p.must(err)
	if arrived {
		p.Errorf("a message from %s came through to %s", p.path, address)
	}
}

// leftovers are what the driver could not undo, with the reasons.
func (d *driver) leftovers() (lines []string) {
	for _, leftover := range d.executor.Leftovers() {
		lines = append(lines, leftover.Key+": "+strings.TrimSpace(leftover.Reason))
	}
	return lines
}
