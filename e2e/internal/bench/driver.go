package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Driver is the part of the project's driver that runs chains: an executor and a journal.
type Driver struct {
	Executor *executor.Executor
	// Left contains the attachments of the previous driver, keyed by sandbox ID.
	Left map[string]*executor.Attachment

	bench   *Bench
	path    string
	db      journal.Opened
	options executor.Options
}

// Open creates a driver that uses the journal at path. The driver operates on this machine and uses the plugins in
// CNI_PATH unless the options specify other directories. It is not tied to a test; Pod and Restart require a driver
// returned by [Bench.NewDriver].
func Open(path string, options executor.Options) (*Driver, error) {
	options.Exec = executor.PluginExec{Lock: path + ".cni"}
	if options.Dirs == nil {
		options.Dirs = filepath.SplitList(os.Getenv("CNI_PATH"))
	}
	d := &Driver{path: path, options: options}
	return d, d.begin(nil)
}

// NewDriver creates a driver with an empty journal. The journal is closed at the end of the test.
func (b *Bench) NewDriver(options executor.Options) *Driver {
	b.Helper()
	options.StepTimeout = b.Patience
	d, err := Open(filepath.Join(b.TempDir(), "journal.db"), options)
	b.Must(err)
	d.bench = b
	b.Cleanup(func() { _ = d.db.Close() })
	return d
}

// begin opens the journal and starts the driver with its content.
func (d *Driver) begin(l *life) (err error) {
	if d.db, err = journal.Open(d.path, clock.RealClock{}); err != nil {
		return err
	}
	chains, err := journal.NewChains(d.db.DB)
	if err != nil {
		return err
	}
	options := d.options
	options.Host = mortalHost{Host: host.Linux{}, life: l}
	options.Journal = mortalJournal{Journal: chains, life: l}
	d.Executor = executor.New(options)
	d.Left, _, err = chains.Load(d.Executor)
	return err
}

// Restart stops the driver and starts a new one with the same journal. The new driver runs until the end of the test.
func (d *Driver) Restart() {
	d.bench.Helper()
	d.restart(nil)
}

// RestartUntil is like Restart, but the new driver is killed once it has passed the given number of points. These
// points are the start and the end of each commit to the driver's journal and of each device operation. Killing the
// driver means panicking; [Survives] recovers from the panic.
func (d *Driver) RestartUntil(calls int) {
	d.bench.Helper()
	d.restart(&life{calls: calls})
}

func (d *Driver) restart(l *life) {
	d.bench.Helper()
	d.bench.Must(d.db.Close())
	d.bench.Must(d.begin(l))
}

// Leftovers returns the keys and reasons of the driver's leftovers.
func (d *Driver) Leftovers() (lines []string) {
	for _, leftover := range d.Executor.Leftovers() {
		lines = append(lines, leftover.Key+": "+strings.TrimSpace(leftover.Reason))
	}
	return lines
}

// Plan compiles a topology with the given steps for a claim of the same name, as the driver does when it prepares a
// claim. Root steps need no selector. For each device, Exclusive and either IfName or PCIAddress must be set. A
// device's Request is the name of its root step; empty means the first step.
func (d *Driver) Plan(name, steps string, devices ...cnichain.Device) (*cnichain.Plan, error) {
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = name
	if err := yaml.UnmarshalStrict([]byte(steps), &topology.Spec.Steps); err != nil {
		return nil, err
	}
	types := map[string]string{}
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		types[step.Name] = step.Type
		if len(step.DependOn) == 0 {
			step.Selector = &v1alpha1.StepSelector{CEL: "true"}
		}
	}
	var roots []cnichain.RootDevice
	for _, device := range devices {
		device.Request = cmp.Or(device.Request, topology.Spec.Steps[0].Name)
		device.CNIs = []string{types[device.Request]}
		device, err := snapshot(device)
		if err != nil {
			return nil, err
		}
		roots = append(roots, cnichain.RootDevice{Step: device.Request, Device: device})
	}
	plugins, err := d.Executor.Probe(context.Background(), cnichain.Types(topology))
	if err != nil {
		return nil, err
	}
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: cnichain.Claim{Namespace: "ns", Name: name, UID: name}, Node: "node", Schemas: cnichain.DefaultSchemas(),
		Plugins: plugins, Devices: roots,
	})
	if err := problems.ToAggregate(); err != nil {
		return nil, err
	}
	for i := range plan.Steps {
		if _, _, err := d.Executor.FindRDMA(&plan.Steps[i]); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// snapshot returns the current state of a device, including its sysfs attributes.
func snapshot(device cnichain.Device) (cnichain.Device, error) {
	if device.PCIAddress == "" {
		if target, err := filepath.EvalSymlinks("/sys/class/net/" + device.IfName + "/device"); err == nil {
			device.PCIAddress = filepath.Base(target)
		}
	} else if link, err := FindLink(device.PCIAddress); err == nil { // a function with a userspace driver has no link
		device.IfName = link.Attrs().Name
	}
	device.Pool, device.Name, device.Attributes = "node", cmp.Or(device.IfName, device.PCIAddress), map[string]any{}
	if device.IfName != "" {
		device.Attributes["ifName"] = device.IfName
	}
	if device.PCIAddress != "" {
		device.Attributes["pciAddress"] = device.PCIAddress
		if pf, err := os.Readlink(SysPCI(device.PCIAddress, "physfn")); err == nil {
			device.PF = filepath.Base(pf)
		}
	}
	device, err := host.Linux{}.Snapshot(device)
	if err != nil || device.IfName == "" {
		return device, err
	}
	link, err := netlink.LinkByName(device.IfName)
	if err == nil && link.Attrs().Index != device.Index {
		err = fmt.Errorf("cannot take the baseline of link %q: it is of link %d, want %d", device.IfName, device.Index,
			link.Attrs().Index)
	}
	return device, err
}

// NewAttachment returns an attachment of the plan to a pod with the given name.
func NewAttachment(name string, plan *cnichain.Plan) *executor.Attachment {
	attachment := executor.NewAttachment("sandbox-"+name,
		executor.Pod{Namespace: "ns", Name: name, UID: "uid-" + name}, []cnichain.Plan{*plan})
	attachment.Pin = "/run/netns/dra-" + name
	return attachment
}

// Pod creates a pod with a claim for a topology (see Plan). It does not attach anything yet. The name must not be
// longer than 8 characters.
func (d *Driver) Pod(name, steps string, devices ...cnichain.Device) *Pod {
	b := d.bench
	b.Helper()
	plan, err := d.Plan(name, steps, devices...)
	b.Must(err)
	p := b.PodAt(cnitest.NewPod(b.T, name))
	p.driver, p.Attachment = d, NewAttachment(name, plan)
	b.Cleanup(func() { _ = host.Linux{}.Unpin(p.Attachment.Pin) })
	return p
}
