package kerneltest

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// state describes everything that a chain could leave behind: links, addresses, routes, rules and queues on the host
// and in the pods, packet filters, and files. Each line has the form "where what link details". The lines are sorted
// and contain neither link indexes nor aliases; TestRealHostDeviceAlias tests the latter.
func (l *realLab) state() []string {
	l.Helper()
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	l.must(err)
	defer handle.Close()
	lines := l.network("host", handle)
	for _, p := range l.pods {
		inside, err := p.handle()
		if err != nil {
			continue // the runtime has already released it
		}
		lines = append(lines, l.network(p.name, inside)...)
		inside.Close()
	}
	lines = append(lines, l.filters()...)
	lines = append(lines, l.files("/run", "/var/lib")...)
	slices.Sort(lines)
	return lines
}

// expect compares the current state with the expected one. It does not wait, since DEL returns only once the effects of
// ADD have been removed.
func (l *realLab) expect(want []string) {
	l.Helper()
	if diff := cmp.Diff(want, l.state()); diff != "" {
		l.Errorf("wrong state (-want +got):\n%s", diff)
	}
}

// without returns the lines except those about the given pods or links.
func without(lines []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		fields := strings.Fields(line)
		return slices.ContainsFunc(names, func(name string) bool {
			return fields[0] == name || fields[2] == name || line == "host file /run/netns/"+name
		})
	})
}

// about returns the lines about the given links in the pod.
func (p *realPod) about(links ...string) []string {
	return slices.DeleteFunc(p.state(), func(line string) bool {
		fields := strings.Fields(line)
		return fields[0] != p.name || !slices.Contains(links, fields[2])
	})
}

func with(lines []string, more ...string) []string {
	return slices.Sorted(slices.Values(append(slices.Clone(lines), more...)))
}
