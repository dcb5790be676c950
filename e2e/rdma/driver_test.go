package rdma

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
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
	// death, unless nil, ends the driver at one of its calls.
	death *death
	path  string
	left  map[string]*executor.Attachment // of an earlier driver
}

// errKilled is what a driver panics with that is killed.
var errKilled = errors.New("killed")

// death kills a driver before a journal commit or before or after a change of RDMA devices.
type death struct{ after int }

func (d *death) step() {
	if d == nil {
		return
	}
	if d.after--; d.after < 0 {
		panic(errKilled)
	}
}

type mortalHost struct {
	host.Host
	death *death
}

func (h mortalHost) MoveRDMA(netns string, device cnichain.RDMADevice) error {
	h.death.step()
	err := h.Host.MoveRDMA(netns, device)
	h.death.step()
	return err
}

func (h mortalHost) ReturnRDMA(netns string, device cnichain.RDMADevice) error {
	h.death.step()
	err := h.Host.ReturnRDMA(netns, device)
	h.death.step()
	return err
}

func (h mortalHost) Restore(device cnichain.Device) error {
	h.death.step()
	err := h.Host.Restore(device)
	h.death.step()
	return err
}

type mortalJournal struct {
	executor.Journal
	death *death
}

func (j mortalJournal) Save(attachment *executor.Attachment) error {
	j.death.step()
	return j.Journal.Save(attachment)
}

func (j mortalJournal) Delete(sandbox string) error {
	j.death.step()
	return j.Journal.Delete(sandbox)
}

// newDriver makes a driver with an empty journal.
func newDriver(b *bench) *driver {
	b.Helper()
	d := &driver{bench: b, path: filepath.Join(b.TempDir(), "journal.db")}
	d.begin()
	b.Cleanup(func() { _ = d.db.Close() })
	return d
}

// begin begins with what is in the journal.
func (d *driver) begin() {
	d.Helper()
	var err error
	d.db, err = journal.Open(d.path, time.Now())
	d.must(err)
	chains, err := journal.NewChains(d.db.DB)
	d.must(err)
	d.executor = executor.New(executor.Options{
		Exec: executor.PluginExec{Lock: d.path + ".cni"}, Host: mortalHost{Host: host.Linux{}, death: d.death},
		Journal: mortalJournal{Journal: chains, death: d.death}, Dirs: filepath.SplitList(os.Getenv("CNI_PATH")),
		StepTimeout: patience,
	})
	d.left, _, err = chains.Load(d.executor)
	d.must(err)
}

// restart ends the driver, and makes another on its journal that nothing kills.
func (d *driver) restart() {
	d.Helper()
	d.must(d.db.Close())
	d.death = nil
	d.begin()
}

// tenant is a pod with a device.
type tenant struct {
	*place
	driver     *driver
	attachment *executor.Attachment
}

// tenant makes a pod, and prepares a claim for it: the only step of the topology, called nic, gets a link of the
// machine.
func (d *driver) tenant(name, step, link string, exclusively bool) *tenant {
	d.Helper()
	attributes := d.link(link).Attrs()
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = name
	d.must(yaml.UnmarshalStrict([]byte(step), &topology.Spec.Steps))
	device := cnichain.Device{
		Pool: "node", Name: link, Request: "nic", IfName: link, Exclusive: exclusively,
		CNIs: []string{topology.Spec.Steps[0].Type}, Attributes: map[string]any{"ifName": link},
	}
	if address := d.functionOf(link); address != "" {
		device.PCIAddress = address
		if pf, err := os.Readlink(sysPCI(address, "physfn")); err == nil {
			device.PF = filepath.Base(pf)
		}
	}
	device, err := host.Linux{}.Snapshot(device)
	d.must(err)
	if device.Index != attributes.Index {
		d.Fatalf("the baseline is of link %d, want %d", device.Index, attributes.Index)
	}
	plugins, err := d.executor.Probe(context.Background(), cnichain.Types(topology))
	d.must(err)
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: cnichain.Claim{Namespace: "ns", Name: name, UID: name}, Node: "node", Schemas: cnichain.DefaultSchemas(),
		Plugins: plugins, Devices: []cnichain.RootDevice{{Step: "nic", Device: device}},
	})
	d.must(problems.ToAggregate())
	_, _, err = d.executor.FindRDMA(&plan.Steps[0])
	d.must(err)
	t := &tenant{place: d.pod(name), driver: d}
	t.attachment = executor.NewAttachment("sandbox-"+name,
		executor.Pod{Namespace: "ns", Name: name, UID: "uid-" + name}, []cnichain.Plan{*plan})
	t.attachment.Pin = "/run/netns/dra-" + name
	d.Cleanup(func() { _ = host.Linux{}.Unpin(t.attachment.Pin) })
	return t
}

// functionOf is the PCI address of a link of the machine; "" for a virtual one.
func (b *bench) functionOf(link string) string {
	target, err := filepath.EvalSymlinks("/sys/class/net/" + link + "/device")
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

func (t *tenant) add() error {
	return t.driver.executor.Add(context.Background(), t.attachment, t.path, "node")
}

func (t *tenant) del() error { return t.driver.executor.Del(context.Background(), t.attachment) }

func (t *tenant) attach() {
	t.Helper()
	t.must(t.add())
}

func (t *tenant) detach() {
	t.Helper()
	t.must(t.del())
}

// nodes are the device nodes that containers of the pod get.
func (t *tenant) nodes() []string { return t.attachment.Steps[0].DeviceNodes }

// end is the tenant as one that talks.
func (t *tenant) end(device, address string) *end {
	return &end{place: t.place, device: device, address: address}
}

// rename renames an RDMA device of a namespace.
func (p *place) rename(device, name string) {
	p.Helper()
	p.inside(func() error {
		link, err := netlink.RdmaLinkByName(device)
		if err != nil {
			return err
		}
		return netlink.RdmaLinkSetName(link, name)
	})
}
