package sriov

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
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
	left     map[string]*executor.Attachment // from an earlier driver
}

// cniDirs is where the plugins are: the first that has one wins.
func cniDirs() []string { return filepath.SplitList(os.Getenv("CNI_PATH")) }

func newDriver(b *bench) *driver {
	b.Helper()
	d, err := openDriver(filepath.Join(b.TempDir(), "journal.db"), cniDirs())
	b.must(err)
	b.Cleanup(func() { _ = d.db.Close() })
	d.bench = b
	return d
}

// openDriver begins with what is in the journal. The driver has no bench.
func openDriver(path string, dirs []string) (*driver, error) {
	d := &driver{}
	var err error
	if d.db, err = journal.Open(path, time.Now()); err != nil {
		return nil, err
	}
	chains, err := journal.NewChains(d.db.DB)
	if err != nil {
		return nil, err
	}
	d.executor = executor.New(executor.Options{
		Exec: executor.PluginExec{Lock: path + ".cni"}, Host: host.Linux{}, Journal: chains, Dirs: dirs,
		StepTimeout: patience,
	})
	d.left, _, err = chains.Load(d.executor)
	return d, err
}

// device is a virtual function as it is when a claim is prepared, for a root step.
func device(step, address, cniType string) (cnichain.RootDevice, error) {
	pf, err := os.Readlink(sysPCI(address, "physfn"))
	if err != nil {
		return cnichain.RootDevice{}, err
	}
	name := "" // with a userspace driver
	if links, err := os.ReadDir(sysPCI(address, "net")); err == nil && len(links) > 0 {
		name = links[0].Name()
	}
	baseline, err := host.Linux{}.Snapshot(cnichain.Device{
		Pool: "node", Name: step, Request: step, IfName: name, PCIAddress: address, PF: filepath.Base(pf),
		Exclusive: true, CNIs: []string{cniType},
		Attributes: map[string]any{"pciAddress": address},
	})
	return cnichain.RootDevice{Step: step, Device: baseline}, err
}

// plan compiles a topology of these steps for a claim of the same name. Root steps need no selector.
func (d *driver) plan(name, steps string, devices ...cnichain.RootDevice) (*cnichain.Plan, error) {
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = name
	if err := yaml.UnmarshalStrict([]byte(steps), &topology.Spec.Steps); err != nil {
		return nil, err
	}
	for i := range topology.Spec.Steps {
		if step := &topology.Spec.Steps[i]; len(step.DependOn) == 0 {
			step.Selector = &v1alpha1.StepSelector{CEL: "true"}
		}
	}
	plugins, err := d.executor.Probe(context.Background(), cnichain.Types(topology))
	if err != nil {
		return nil, err
	}
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: cnichain.Claim{Namespace: "ns", Name: name, UID: name}, Node: "node", Schemas: cnichain.DefaultSchemas(),
		Plugins: plugins, Devices: devices,
	})
	return plan, problems.ToAggregate()
}

// attachment is a new one of a pod of that name.
func attachment(name string, plan *cnichain.Plan) *executor.Attachment {
	a := executor.NewAttachment("sandbox-"+name, executor.Pod{Namespace: "ns", Name: name, UID: "uid-" + name},
		[]cnichain.Plan{*plan})
	a.Pin = "/run/netns/dra-" + name
	return a
}

// function names a virtual function for a root step.
type function struct {
	step, pf string
	index    int
}

// pod is a pod with devices.
type pod struct {
	*driver
	path       string
	attachment *executor.Attachment
}

// attach makes a pod and runs a chain for it. The name has at most 8 characters.
func (d *driver) attach(name, cniType, steps string, functions ...function) *pod {
	d.Helper()
	p := d.pod(name, cniType, steps, functions...)
	d.must(p.add())
	return p
}

// pod makes a pod and what add needs.
func (d *driver) pod(name, cniType, steps string, functions ...function) *pod {
	d.Helper()
	var devices []cnichain.RootDevice
	for _, f := range functions {
		root, err := device(f.step, d.vf(f.pf, f.index), cniType)
		d.must(err)
		devices = append(devices, root)
	}
	plan, err := d.plan(name, steps, devices...)
	d.must(err)
	p := &pod{driver: d, path: cnitest.NewPod(d.T, name), attachment: attachment(name, plan)}
	d.Cleanup(func() { _ = host.Linux{}.Unpin(p.attachment.Pin) })
	return p
}

func (p *pod) add() error {
	return p.executor.Add(context.Background(), p.attachment, p.path, "node")
}

func (p *pod) del() error { return p.executor.Del(context.Background(), p.attachment) }

func (p *pod) detach() {
	p.Helper()
	p.must(p.del())
}

// destroy ends the pod's namespace under the driver: nothing holds it any more.
func (p *pod) destroy() {
	p.Helper()
	cnitest.RemovePod(p.path)
	p.must(host.Linux{}.Unpin(p.attachment.Pin))
}

// inside runs code with a handle on the pod's namespace.
func (p *pod) inside(do func(*netlink.Handle) error) {
	p.Helper()
	namespace, err := netns.GetFromPath(p.path)
	p.must(err)
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	p.must(err)
	p.must(do(handle))
	handle.Close()
	p.must(namespace.Close())
}

// change changes a link of the pod.
func (p *pod) change(name string, changes ...func(*netlink.Handle, netlink.Link) error) {
	p.Helper()
	p.inside(func(handle *netlink.Handle) error {
		link, err := handle.LinkByName(name)
		for _, change := range changes {
			if err == nil {
				err = change(handle, link)
			}
		}
		return err
	})
}

// links describes what was added to the pod.
func (p *pod) links() []string {
	p.Helper()
	var lines []string
	p.inside(func(handle *netlink.Handle) error {
		links, err := handle.LinkList()
		for _, link := range links {
			attrs := link.Attrs()
			if attrs.Name == "lo" || attrs.Name == "eth0" {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s %s mtu %d up %v", attrs.Name, link.Type(), attrs.MTU,
				attrs.Flags&net.FlagUp != 0))
		}
		return err
	})
	slices.Sort(lines)
	return lines
}

// card is everything that a tenant could leave behind on the machine's virtual functions.
func (b *bench) card() []string {
	b.Helper()
	var lines []string
	for _, pf := range []string{pf0, pf1} {
		for _, vf := range b.link(pf).Attrs().Vfs {
			address := b.vf(pf, vf.ID)
			line := address + " " + b.settings(pf, vf.ID)
			links, err := os.ReadDir(sysPCI(address, "net"))
			if err != nil || len(links) != 1 {
				lines = append(lines, line+" has no link")
				continue
			}
			attrs := b.link(address).Attrs()
			lines = append(lines, fmt.Sprintf("%s link %s %s mtu %d up %v alias %q names %v", line,
				attrs.Name, attrs.HardwareAddr, attrs.MTU, attrs.Flags&net.FlagUp != 0, attrs.Alias, attrs.AltNames))
		}
	}
	return lines
}

// expect compares the machine's virtual functions, and looks for files of plugins.
func (b *bench) expect(before []string) {
	b.Helper()
	if diff := cmp.Diff(before, b.card()); diff != "" {
		b.Errorf("virtual functions are not as they were (-before +now):\n%s", diff)
	}
}

// empty expects that the sriov plugin has no record of anything. After a DEL that failed it keeps a note of which
// namespace has the function, which ends with that namespace.
func (b *bench) empty() {
	b.Helper()
	b.must(filepath.WalkDir(pluginState, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "vf_lock" {
			return filepath.SkipDir // empty, one for each function
		}
		if filepath.Base(filepath.Dir(path)) == "pci" {
			if holder, err := os.ReadFile(path); err == nil && !(host.Linux{}).Exists(string(holder)) {
				return nil
			}
		}
		if err == nil && !entry.IsDir() {
			b.Errorf("the plugin still has %s", path)
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}))
}

// text renders a value for an error message.
func text(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}
