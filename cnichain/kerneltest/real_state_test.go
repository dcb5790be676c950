package kerneltest

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// state describes everything that a chain could leave: links, addresses, routes, rules and queues of the host and of
// the pods, packet filters, files. One line for each, as "where what link details"; sorted, and without link indexes.
// Aliases are left out: TestRealHostDeviceAlias is about them.
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

// expect compares without waiting: DEL returns only after its effects are removed.
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
