package kerneltest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const (
	realLeases  = "/var/lib/leases" // host-local's dataDir
	realJournal = "/var/lib/driver" // not part of the host's state
)

// realLab is the host side of a machine, with the reference plugins and one driver's executor and journal.
type realLab struct {
	testHost
	dir      string
	db       journal.Opened
	chains   *journal.Chains
	executor *executor.Executor
	pods     []*realPod
	// index is the last index assigned to a host link. These indexes are far from those chosen by the kernel: indexes
	// are per namespace, and tests that need the same index on the host and in a pod request it explicitly.
	index int
	// blocks contains the node's AddressBlocks, by AddressRange.
	blocks map[string][]cnichain.BlockRoom
	// bootID overrides the kernel's boot ID in new executors if it is not empty.
	bootID string
}

// kernel returns the host implementation that executors use.
func (l *realLab) kernel() host.Linux { return host.Linux{BootID: l.bootID} }

// newRealLab returns a lab with an empty journal. exec may be nil.
func newRealLab(t *testing.T, exec executor.Exec) *realLab {
	t.Helper()
	l := &realLab{testHost: testHost{T: t}, dir: cnitest.RealPlugins(t), index: 4000}
	var err error
	path := filepath.Join(realJournal, strings.ReplaceAll(t.Name(), "/", "_")+".db")
	l.db, err = journal.Open(path, clock.RealClock{})
	l.must(err)
	t.Cleanup(func() { _ = l.db.Close() })
	l.wipe(realLeases) // otherwise, host-local would continue where an earlier subtest stopped
	l.restart(exec)
	return l
}

// restart creates a new executor, as a new driver process would, and returns the attachments in the journal.
func (l *realLab) restart(exec executor.Exec) map[string]*executor.Attachment {
	l.Helper()
	if exec == nil {
		exec = executor.PluginExec{}
	}
	chains, err := journal.NewChains(l.db.DB)
	l.must(err)
	l.chains = chains
	l.executor = executor.New(executor.Options{Exec: exec, Host: l.kernel(), Journal: chains,
		Dirs: []string{l.dir, os.Getenv(ownVariable)}})
	attachments, damaged, err := chains.Load(l.executor)
	l.must(err)
	if len(damaged) > 0 {
		l.Fatalf("the journal has damaged records: %v", damaged)
	}
	return attachments
}

// uplink creates a link with a carrier: a veth whose other end, which has the same name with the suffix p, is also up.
func (l *realLab) uplink(name string, change ...func(*netlink.LinkAttrs)) {
	l.Helper()
	l.index++
	attrs := netlink.LinkAttrs{Name: name, MTU: 1500, Index: l.index}
	for _, change := range change {
		change(&attrs)
	}
	l.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "p"}))
	l.onHost(name, netlink.LinkSetUp)
	l.onHost(name+"p", netlink.LinkSetUp)
	l.Cleanup(func() { l.drop(name + "p") }) // also deletes the other end, wherever it is
}

// bridge creates a bridge and sets it up. It has a fixed address, since a bridge without a fixed address uses that of a
// port.
func (l *realLab) bridge(name string) {
	l.Helper()
	l.index++
	mac := net.HardwareAddr{2, 0, 0, 0, 0xb, name[len(name)-1]}
	l.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: mac,
		Index: l.index}}))
	l.onHost(name, netlink.LinkSetUp)
	l.Cleanup(func() { l.drop(name) })
}

// drop deletes a link on the host if it exists.
func (l *realLab) drop(name string) {
	if link, err := netlink.LinkByName(name); err == nil {
		l.must(netlink.LinkDel(link))
	}
}

func (l *realLab) onHost(name string, do func(netlink.Link) error) {
	l.Helper()
	link, err := netlink.LinkByName(name)
	l.must(err)
	l.must(do(link))
}

// device returns a link on the host in the form recorded when a claim is prepared.
func (l *realLab) device(name string) cnichain.Device {
	l.Helper()
	return l.snapshot(name, false)
}

func (l *realLab) snapshot(name string, exclusive bool) cnichain.Device {
	l.Helper()
	device, err := l.kernel().Snapshot(cnichain.Device{
		Pool: "node", Name: name, Request: "nic", IfName: name, Exclusive: exclusive,
		CNIs:       []string{"macvlan", "bridge", "host-device", "netdev", "ptp"},
		Attributes: map[string]any{"ifName": name, "mtu": 1380},
	})
	l.must(err)
	return device
}

// shared and exclusive assign a link on the host to a root step.
func (l *realLab) shared(step, name string) cnichain.RootDevice {
	l.Helper()
	return cnichain.RootDevice{Step: step, Device: l.device(name)}
}

func (l *realLab) exclusive(step, name string) cnichain.RootDevice {
	l.Helper()
	return cnichain.RootDevice{Step: step, Device: l.snapshot(name, true)}
}

// plan compiles a topology with the given name and steps for a claim with the same name. Root steps need no selector.
func (l *realLab) plan(name, steps string, devices ...cnichain.RootDevice) cnichain.Plan {
	l.Helper()
	return l.planOf(cnichain.Claim{Namespace: "ns", Name: name, UID: name}, name, steps, devices...)
}

// planOf compiles a topology for a claim.
func (l *realLab) planOf(claim cnichain.Claim, name, steps string, devices ...cnichain.RootDevice) cnichain.Plan {
	l.Helper()
	topology := &v1alpha1.NetworkTopology{}
	topology.Name = name
	l.must(yaml.UnmarshalStrict([]byte(steps), &topology.Spec.Steps))
	for i := range topology.Spec.Steps {
		if step := &topology.Spec.Steps[i]; len(step.DependOn) == 0 {
			step.Selector = &v1alpha1.StepSelector{CEL: "true"}
		}
	}
	plugins, err := l.executor.Probe(context.Background(), cnichain.Types(topology))
	l.must(err)
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: claim, Node: "node", Schemas: cnichain.DefaultSchemas(), Plugins: plugins, Devices: devices,
		Blocks: l.blocks,
	})
	if len(problems) > 0 {
		l.Fatal(problems.ToAggregate())
	}
	return *plan
}

// realPod is a pod in the lab with its attachment.
type realPod struct {
	*realLab
	name, path string
	attachment *executor.Attachment
}

// pod creates a pod with an eth0, and a new attachment for it. The name must not be longer than 8 characters.
func (l *realLab) pod(name string, plans ...cnichain.Plan) *realPod {
	l.Helper()
	p := &realPod{realLab: l, name: name}
	l.Cleanup(func() { // runs after the cleanup of NewPod
		_ = host.Linux{}.Unpin(p.attachment.Pin)
		p.awaitGone()
	})
	p.path = cnitest.NewPod(l.T, name)
	p.plans(plans...)
	l.pods = append(l.pods, p)
	return p
}

// plans creates a new attachment.
func (p *realPod) plans(plans ...cnichain.Plan) {
	p.attachment = executor.NewAttachment("sandbox-"+p.name,
		executor.Pod{Namespace: "ns", Name: p.name, UID: "uid-" + p.name}, plans)
	p.attachment.Pin = "/run/netns/dra-" + p.name
}

func (p *realPod) tryAdd() error {
	return p.executor.Add(context.Background(), p.attachment, p.path, "node")
}

func (p *realPod) add() {
	p.Helper()
	if err := p.tryAdd(); err != nil {
		p.Fatalf("ADD of pod %s failed: %v", p.name, err)
	}
}

// refused expects ADD to fail with an error that contains all parts.
func (p *realPod) refused(parts ...string) {
	p.Helper()
	p.says(p.tryAdd(), parts...)
}

func (l *realLab) says(err error, parts ...string) {
	l.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			l.Errorf("error =\n%v\nwant one that contains %q", err, part)
		}
	}
}

func (p *realPod) tryDel(claims ...string) error {
	return p.executor.Del(context.Background(), p.attachment, claims...)
}

func (p *realPod) del(claims ...string) {
	p.Helper()
	if err := p.tryDel(claims...); err != nil {
		p.Errorf("DEL of pod %s failed: %v", p.name, err)
	}
}

// healthy expects CHECK to succeed without changing anything.
func (p *realPod) healthy() {
	p.Helper()
	before := p.state()
	if err := p.executor.Check(context.Background(), p.attachment); err != nil {
		p.Errorf("CHECK of the healthy pod %s failed: %v", p.name, err)
	}
	p.expect(before)
}

// record returns a copy of the attachment as it would be read from the journal.
func (p *realPod) record() *executor.Attachment {
	p.Helper()
	data, err := json.Marshal(p.attachment)
	p.must(err)
	loaded := &executor.Attachment{}
	p.must(json.Unmarshal(data, loaded))
	return loaded
}

// end releases the namespace, as the runtime does when the pod terminates.
func (p *realPod) end() { cnitest.RemovePod(p.path) }

// reboot releases the last reference to the namespace, which the kernel then destroys in the background. The lab's next
// executor sees a different boot ID.
func (p *realPod) reboot() {
	p.Helper()
	p.bootID = "of the next boot"
	p.end()
	p.must(host.Linux{}.Unpin(p.attachment.Pin))
	p.awaitGone()
}

// awaitGone waits until the kernel has destroyed the pod's namespace, and, with it, the other end of eth0.
func (p *realPod) awaitGone() {
	p.Helper()
	p.await("namespace of pod "+p.name+" is destroyed", func() bool {
		_, err := netlink.LinkByName("pod" + p.name)
		return err != nil
	})
}

// await waits for an asynchronous change in the kernel.
func (l *realLab) await(what string, done func() bool) {
	l.Helper()
	limit := time.After(10 * time.Second)
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-limit:
			l.Fatalf("timed out waiting until %s", what)
		case <-ticker.C:
		}
	}
}

// inside calls a function with a netlink handle for the pod's namespace.
func (p *realPod) inside(do func(*netlink.Handle) error) {
	p.Helper()
	handle, err := p.handle()
	p.must(err)
	defer handle.Close()
	p.must(do(handle))
}

func (p *realPod) handle() (*netlink.Handle, error) {
	namespace, err := netns.GetFromPath(p.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = namespace.Close() }()
	return netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
}

// link modifies one of the pod's links.
func (p *realPod) link(name string, do func(*netlink.Handle, netlink.Link) error) {
	p.Helper()
	p.inside(func(handle *netlink.Handle) error {
		link, err := handle.LinkByName(name)
		if err != nil {
			return fmt.Errorf("link %s of pod %s: %w", name, p.name, err)
		}
		return do(handle, link)
	})
}

// show describes what was added to the pod, with one line for each link and its addresses.
func (p *realPod) show() []string {
	p.Helper()
	var lines []string
	p.inside(func(handle *netlink.Handle) error {
		links, err := handle.LinkList()
		p.must(err)
		for _, link := range links {
			attrs := link.Attrs()
			if attrs.Name == "lo" || attrs.Name == "eth0" {
				continue
			}
			line := fmt.Sprintf("%s %s mtu=%d up=%v", attrs.Name, link.Type(), attrs.MTU, attrs.Flags&net.FlagUp != 0)
			addresses, err := handle.AddrList(link, netlink.FAMILY_ALL)
			p.must(err)
			for _, address := range addresses {
				if !address.IP.IsLinkLocalUnicast() {
					line += " " + address.IPNet.String()
				}
				if address.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 && !address.IP.IsLinkLocalUnicast() {
					line += " tentative" // becomes ready after duplicate address detection
				}
			}
			lines = append(lines, line)
		}
		return nil
	})
	slices.Sort(lines)
	return lines
}

// has compares the description of all additions to the pod with the expected lines.
func (p *realPod) has(want ...string) {
	p.Helper()
	if diff := cmp.Diff(want, p.show()); diff != "" {
		p.Errorf("pod %s has wrong links (-want +got):\n%s", p.name, diff)
	}
}

// leases compares the addresses assigned by host-local with the expected ones, given as network/address.
func (l *realLab) leases(want ...string) {
	l.Helper()
	var leases []string
	found, err := filepath.Glob(realLeases + "/*/*")
	l.must(err)
	for _, path := range found {
		if _, err := netip.ParseAddr(filepath.Base(path)); err == nil {
			leases = append(leases, strings.TrimPrefix(path, realLeases+"/"))
		}
	}
	if diff := cmp.Diff(want, leases); diff != "" {
		l.Errorf("wrong leases (-want +got):\n%s", diff)
	}
}

// reaches opens a TCP connection from an address of this pod to an address of the other pod, and reads the greeting.
func (p *realPod) reaches(source string, other *realPod, address string) {
	p.Helper()
	listener, err := inNamespace(other.path,
		func() (net.Listener, error) { return net.Listen("tcp", net.JoinHostPort(address, "0")) })
	if err != nil {
		p.Errorf("pod %s cannot listen on %s: %v", other.name, address, err)
		return
	}
	defer func() { _ = listener.Close() }()
	go serve(listener, other.name)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: 5 * time.Second}
	connection, err := inNamespace(p.path,
		func() (net.Conn, error) { return dialer.Dial("tcp", listener.Addr().String()) })
	if err != nil {
		p.Errorf("pod %s cannot reach pod %s: %v", p.name, other.name, err)
		return
	}
	defer func() { _ = connection.Close() }()
	if said, err := io.ReadAll(connection); err != nil || string(said) != other.name {
		p.Errorf("pod %s reached %q at %s, want pod %s (%v)", p.name, said, address, other.name, err)
	}
}

// serve sends a string to the first client that connects.
func serve(listener net.Listener, text string) {
	if connection, err := listener.Accept(); err == nil {
		_, _ = connection.Write([]byte(text))
		_ = connection.Close()
	}
}

// inNamespace calls a function on a thread in a network namespace. The thread terminates after the call.
func inNamespace[T any](path string, do func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that nothing else runs on this thread
		var result outcome
		namespace, err := netns.GetFromPath(path)
		if err == nil {
			err = netns.Set(namespace)
			_ = namespace.Close()
		}
		if result.err = err; err == nil {
			result.value, result.err = do()
		}
		done <- result
	}()
	result := <-done
	return result.value, result.err
}

// empty expects the journal to contain no records.
func (l *realLab) empty() {
	l.Helper()
	runner := executor.New(executor.Options{})
	attachments, _, err := l.chains.Load(runner)
	l.must(err)
	if len(attachments) > 0 || len(runner.Leftovers()) > 0 {
		l.Errorf("the journal still has attachments %v and leftovers %v", attachments, runner.Leftovers())
	}
}

// wipe removes files, as an administrator or a reinstallation might.
func (l *realLab) wipe(paths ...string) {
	l.Helper()
	for _, path := range paths {
		l.must(os.RemoveAll(path))
	}
}
