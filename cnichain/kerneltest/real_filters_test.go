package kerneltest

import (
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

// realDiamond has two steps that depend on the same root, and one step that depends on both.
const realDiamond = `
- name: link
  type: bridge
  config:
    {isGateway: true, ipMasq: true, ipMasqBackend: BACKEND, ipam: {type: host-local, dataDir: /var/lib/leases, ranges: [[{subnet: 10.2.0.0/24}]]}}
- {name: limit, type: bandwidth, dependOn: [link], config: {ingressRate: 8000000, ingressBurst: 800000, egressRate: 16000000, egressBurst: 800000}}
- {name: wall, type: firewall, dependOn: [link], config: {backend: iptables}}
- {name: ports, type: portmap, dependOn: [limit, wall], ifName: "{{ link.interfaceName }}", config: {backend: BACKEND, runtimeConfig: {portMappings: [{hostPort: PORT, containerPort: 80, protocol: tcp}]}}}
`

func TestRealDiamond(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	for _, backend := range []string{"iptables", "nftables"} {
		t.Run(backend, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.needs("iptables", "nft")
			l.needsKind(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "ifb9"}})
			l.bridge("br0")
			steps := strings.ReplaceAll(realDiamond, "BACKEND", backend)
			plan := func(port int) cnichain.Plan {
				return l.plan("first", strings.ReplaceAll(steps, "PORT", strconv.Itoa(port)), l.shared("link", "br0"))
			}
			l.prime(plan(7070))

			a, b := l.pod("a", plan(8080)), l.pod("b", plan(9090))
			before := l.state()
			a.add()
			b.add()
			a.healthy()
			a.has("net1 veth mtu=1500 up=true 10.2.0.3/24")
			b.has("net1 veth mtu=1500 up=true 10.2.0.4/24")
			l.mentions("filter", "10.2.0.3", "10.2.0.4", "dnat to 10.2.0.3:80", "dnat to 10.2.0.4:80", "masquerade",
				"CNI-FORWARD: ip saddr 10.2.0.3")
			l.limited(a, 1_000_000, 2_000_000)
			a.reaches("10.2.0.3", b, "10.2.0.4")
			a.answers("10.2.0.3:80", "10.2.0.1:8080")

			a.del() // b is not affected
			l.mentions("filter", "dnat to 10.2.0.4:80", "CNI-FORWARD: ip saddr 10.2.0.4")
			b.answers("10.2.0.4:80", "10.2.0.1:9090")
			b.del()
			l.expect(before)
			l.empty()
		})
	}
}

// A step limits traffic to the bandwidth that the claim was allocated: TCP reaches at least 90 % of it, and never more
// than 110 %. On a busy machine, the sender may not be able to use all of the bandwidth at once, so the best of several
// transfers counts.
func TestRealBandwidthOfTheClaim(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	l := newRealLab(t, nil)
	l.needsKind(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "ifb9"}})
	l.bridge("br0")
	share := l.shared("link", "br0")
	share.Device.Attributes["capacity.bandwidth.bits"] = int64(80_000_000)
	const rates = `{ingressRate: RATE, ingressBurst: 800000, egressRate: RATE, egressBurst: 800000}`
	plan := l.plan("first", `
- {name: link, type: bridge, config: {ipam: {type: host-local, dataDir: /var/lib/leases, ranges: [[{subnet: 10.2.0.0/24}]]}}}
- {name: limit, type: bandwidth, dependOn: [link], config: `+
		strings.ReplaceAll(rates, "RATE", `"{{ link.capacity.bandwidth.bits }}"`)+"}", share)
	a, b := l.pod("a", plan), l.pod("b", plan)
	before := l.state()
	a.add()
	l.limited(a, 10_000_000, 10_000_000)
	b.add()
	const bytes, wanted = 8_000_000, 80.0
	best := 0.0
	for attempt := 0; attempt < 5 && best < 0.9*wanted; attempt++ {
		best = max(best, a.receives(b, "10.2.0.3", bytes))
	}
	l.Logf("pod a receives %.1f Mbit/s, allocated %.0f", best, wanted)
	if best < 0.9*wanted || best > 1.1*wanted {
		l.Errorf("pod a receives %.1f Mbit/s, want %.0f ± 10 %%", best, wanted)
	}
	a.del()
	b.del()
	l.expect(before)
	l.empty()
}

// receives reads bytes from a server that listens on address in the other pod, and returns the rate in Mbit/s at which
// the pod's net1 received frames. The time starts with the first byte.
func (p *realPod) receives(other *realPod, address string, bytes int) float64 {
	p.Helper()
	listener, err := inNamespace(other.path,
		func() (net.Listener, error) { return net.Listen("tcp", net.JoinHostPort(address, "0")) })
	p.must(err)
	defer func() { _ = listener.Close() }()
	go serve(listener, strings.Repeat("x", bytes))
	connection, err := inNamespace(p.path,
		func() (net.Conn, error) { return net.DialTimeout("tcp", listener.Addr().String(), 5*time.Second) })
	p.must(err)
	defer func() { _ = connection.Close() }()
	_, err = io.ReadFull(connection, make([]byte, 1))
	p.must(err)
	start, before := time.Now(), p.received("net1")
	if read, err := io.Copy(io.Discard, connection); err != nil || read != int64(bytes-1) {
		p.Fatalf("pod %s received %d of %d bytes from %s: %v", p.name, read+1, bytes, address, err)
	}
	return float64(p.received("net1")-before) * 8 / 1e6 / time.Since(start).Seconds()
}

// received returns the number of bytes that a link has received.
func (p *realPod) received(name string) (bytes uint64) {
	p.Helper()
	p.link(name, func(_ *netlink.Handle, link netlink.Link) error {
		bytes = link.Attrs().Statistics.RxBytes
		return nil
	})
	return bytes
}

// prime attaches and detaches a first pod, which creates the state that plugins share between pods and never remove:
// tables and base chains, the firewall plugin's CNI-FORWARD and CNI-ADMIN, portmap's CNI-HOSTPORT chains, and bridge's
// gateway address. None of this state may refer to the pod.
func (l *realLab) prime(plan cnichain.Plan) {
	l.Helper()
	p := l.pod("prime", plan)
	p.add()
	p.del()
	for _, line := range l.filters() {
		for _, text := range []string{"10.2.0.2", "10.3.0.2", "7070", p.attachment.SandboxID} {
			if strings.Contains(line, text) {
				l.Errorf("this line still refers to the first pod: %s", line)
			}
		}
	}
	p.end()
	p.awaitGone()
}

// mentions expects the lines of the state to contain all parts between them.
func (l *realLab) mentions(what string, parts ...string) {
	l.Helper()
	text := ""
	for _, line := range l.state() {
		if strings.Fields(line)[1] == what {
			text += line + "\n"
		}
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			l.Errorf("no %s contains %q in\n%s", what, part, text)
		}
	}
}

// limited expects traffic to and from the pod's net1 to be limited to the given rates, in bytes per second: by a tbf on
// the host end of the veth, and by a second tbf on the ifb that receives that end's ingress traffic.
func (l *realLab) limited(p *realPod, toPod, fromPod uint64) {
	l.Helper()
	peer := 0
	p.link("net1", func(_ *netlink.Handle, link netlink.Link) error {
		peer = link.Attrs().ParentIndex
		return nil
	})
	end, err := netlink.LinkByIndex(peer)
	l.must(err)
	filters, err := netlink.FilterList(end, netlink.MakeHandle(0xffff, 0))
	l.must(err)
	if len(filters) != 1 {
		l.Fatalf("%s has filters %v, want exactly one", end.Attrs().Name, filters)
	}
	ifb, err := netlink.LinkByIndex(filters[0].(*netlink.U32).RedirIndex)
	l.must(err)
	if current := [2]uint64{rate(l, end), rate(l, ifb)}; ifb.Type() != "ifb" || current != [2]uint64{toPod, fromPod} {
		l.Errorf("pod %s is limited to %v bytes/s by %s and %s", p.name, current, end.Attrs().Name, ifb.Attrs().Name)
	}
}

func rate(l *realLab, link netlink.Link) uint64 {
	l.Helper()
	queues, err := netlink.QdiscList(link)
	l.must(err)
	for _, queue := range queues {
		if tbf, found := queue.(*netlink.Tbf); found {
			return tbf.Rate
		}
	}
	return 0
}

// answers expects the host to be able to connect from source to a server that listens on address in the pod.
func (p *realPod) answers(address, source string) {
	p.Helper()
	listener, err := inNamespace(p.path, func() (net.Listener, error) { return net.Listen("tcp", address) })
	p.must(err)
	defer func() { _ = listener.Close() }()
	go serve(listener, p.name)
	connection, err := net.DialTimeout("tcp", source, 5*time.Second)
	if err != nil {
		p.Errorf("cannot reach pod %s: %v", p.name, err)
		return
	}
	defer func() { _ = connection.Close() }()
	if said, err := io.ReadAll(connection); err != nil || string(said) != p.name {
		p.Errorf("%s answered %q, want pod %s (%v)", source, said, p.name, err)
	}
}
