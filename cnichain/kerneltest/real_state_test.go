package kerneltest

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// state describes everything that a chain could leave: links, addresses, routes, rules and queues of the host and of the
// pods, packet filters, files. One line for each, as "where what link details"; sorted, and without link indexes. Aliases
// are left out: TestRealHostDeviceAlias is about them.
func (l *realLab) state() []string {
	l.Helper()
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	l.must(err)
	defer handle.Close()
	lines := l.network("host", handle)
	for _, p := range l.pods {
		inside, err := p.handle()
		if err != nil {
			continue // the runtime has let go of it
		}
		lines = append(lines, l.network(p.name, inside)...)
		inside.Close()
	}
	lines = append(lines, l.filters()...)
	lines = append(lines, l.files("/run", "/var/lib")...)
	slices.Sort(lines)
	return lines
}

// expect compares; nothing waits here: what is to be gone is gone when DEL has returned.
func (l *realLab) expect(want []string) {
	l.Helper()
	if diff := cmp.Diff(want, l.state()); diff != "" {
		l.Errorf("the host is not as it should be (-want +is):\n%s", diff)
	}
}

// without leaves out lines that are about a pod or a link.
func without(lines []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		fields := strings.Fields(line)
		return slices.ContainsFunc(names, func(name string) bool {
			return fields[0] == name || fields[2] == name || line == "host file /run/netns/"+name
		})
	})
}

// about are the lines about links of a pod.
func (p *realPod) about(links ...string) []string {
	return slices.DeleteFunc(p.state(), func(line string) bool {
		fields := strings.Fields(line)
		return fields[0] != p.name || !slices.Contains(links, fields[2])
	})
}

func with(lines []string, more ...string) []string {
	return slices.Sorted(slices.Values(append(slices.Clone(lines), more...)))
}

func (l *realLab) network(where string, handle *netlink.Handle) []string {
	l.Helper()
	links, err := handle.LinkList()
	l.must(err)
	names := map[int]string{0: "-"}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	var lines []string
	for _, link := range links {
		attrs := link.Attrs()
		slices.Sort(attrs.AltNames)
		lines = append(lines, fmt.Sprintf("%s link %s %s mac=%s mtu=%d up=%v alt=%v master=%s queue=%d promisc=%d allmulti=%v",
			where, attrs.Name, link.Type(), attrs.HardwareAddr, attrs.MTU, attrs.Flags&net.FlagUp != 0, attrs.AltNames,
			names[attrs.MasterIndex], attrs.TxQLen, attrs.Promisc, attrs.RawFlags&unix.IFF_ALLMULTI != 0))
		addresses, err := handle.AddrList(link, netlink.FAMILY_ALL)
		l.must(err)
		for _, address := range addresses {
			if !address.IP.IsLinkLocalUnicast() { // these come when the link has a carrier, some time later
				lines = append(lines, fmt.Sprintf("%s address %s %s", where, attrs.Name, address.IPNet))
			}
		}
		queues, err := handle.QdiscList(link)
		l.must(err)
		for _, queue := range queues {
			if queue.Type() == "noqueue" {
				continue // none, which shows only when the link has been up
			}
			lines = append(lines, fmt.Sprintf("%s queue %s %s parent %s", where, attrs.Name, queue.Type(), netlink.HandleStr(queue.Attrs().Parent)))
		}
	}
	return append(lines, l.routing(where, handle, names)...)
}

func (l *realLab) routing(where string, handle *netlink.Handle, names map[int]string) []string {
	l.Helper()
	routes, err := handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	l.must(err)
	var lines []string
	for _, route := range routes {
		if route.Dst != nil && (route.Dst.IP.IsLinkLocalUnicast() || route.Dst.IP.IsMulticast()) && route.Dst.IP.To4() == nil {
			continue // comes and goes with the addresses that are left out above
		}
		lines = append(lines, fmt.Sprintf("%s route %s table %d to %s via %s src %s scope %s", where, names[route.LinkIndex], route.Table,
			route.Dst, route.Gw, route.Src, route.Scope))
	}
	rules, err := handle.RuleList(netlink.FAMILY_ALL)
	l.must(err)
	for _, rule := range rules {
		lines = append(lines, fmt.Sprintf("%s rule - %s", where, rule))
	}
	return lines
}

// filters are the host's packet filter rules, without counters.
func (l *realLab) filters() []string {
	l.Helper()
	nft, err := exec.LookPath("nft")
	if err != nil {
		return nil // then no plugin can make any, and tests of those are skipped
	}
	output, err := exec.Command(nft, "--stateless", "list", "ruleset").CombinedOutput()
	if err != nil {
		l.Fatalf("nft: %v: %s", err, output)
	}
	var lines, path []string
	for line := range strings.Lines(string(output)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case strings.HasSuffix(line, "{"):
			path = append(path, strings.TrimSpace(strings.TrimSuffix(line, "{")))
			lines = append(lines, "host filter "+strings.Join(path, ": "))
		case line == "}":
			path = path[:len(path)-1]
		default:
			lines = append(lines, "host filter "+strings.Join(path, ": ")+": "+line)
		}
	}
	return lines
}

// files are those below the directories, but not what stays by a plugin's nature.
func (l *realLab) files(dirs ...string) []string {
	l.Helper()
	var lines []string
	for _, dir := range dirs {
		l.must(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case os.IsNotExist(err):
				return nil
			case err != nil:
				return err
			case path == realJournal:
				return filepath.SkipDir
			case entry.IsDir():
				return nil // host-local and tuning keep theirs, empty
			case entry.Name() == "lock" || strings.HasPrefix(entry.Name(), "last_reserved_ip."):
				return nil // host-local's lock, and where it goes on: not leases
			case entry.Name() == "xtables.lock":
				return nil // of iptables
			}
			lines = append(lines, "host file "+path)
			return nil
		}))
	}
	return lines
}
