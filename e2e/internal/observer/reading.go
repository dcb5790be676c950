package observer

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// reading is the kernel's state at one point in time. It contains only copied values, so it can be compared with a
// later reading.
type reading struct {
	processes  []process
	namespaces map[string]map[string]link // by namespace and name
}

// process is a watched process.
type process struct {
	id         string // PID and start time, because PIDs are reused
	pod        string
	namespace  string
	interfaces []string
}

type link struct {
	// parent is the index of the lower link in that link's own namespace; 0 if the link has no lower link.
	parent    int
	addressed bool
}

// missing returns the interfaces that a process should have but does not. An interface without an address is considered
// missing, because a container cannot use it.
func (r reading) missing(p process) []string {
	return slices.DeleteFunc(slices.Clone(p.interfaces),
		func(name string) bool { return r.namespaces[p.namespace][name].addressed })
}

func (r reading) has(p process) bool {
	return slices.ContainsFunc(r.processes, func(other process) bool { return other.id == p.id && other.pod == p.pod })
}

// users returns the namespaces that contain an interface on top of a link.
func (r reading) users(parent int) []string {
	var users []string
	for _, namespace := range slices.Sorted(maps.Keys(r.namespaces)) {
		for _, link := range r.namespaces[namespace] {
			if link.parent == parent {
				users = append(users, namespace)
				break
			}
		}
	}
	return users
}

// read reads every process that is not in the node's own network namespace, and omits processes that exit in the
// meantime. It reads each namespace once, through the first process found in it. This includes namespaces without
// watched processes, because they may contain links on top of an exclusive link.
func read(proc string) reading {
	now := reading{namespaces: map[string]map[string]link{}}
	node, err := os.Readlink(filepath.Join(proc, "1/ns/net"))
	if err != nil {
		return now // the node is shutting down
	}
	dirs, _ := filepath.Glob(filepath.Join(proc, "[0-9]*")) // the pattern is valid
	for _, dir := range dirs {
		namespace, err := os.Readlink(filepath.Join(dir, "ns/net"))
		if err != nil || namespace == node {
			continue
		}
		if now.namespaces[namespace] == nil {
			if links, err := readLinks(filepath.Join(dir, "ns/net")); err == nil {
				now.namespaces[namespace] = links
			}
		}
		if watched, ok := readProcess(dir, namespace); ok && now.namespaces[namespace] != nil {
			now.processes = append(now.processes, watched)
		}
	}
	return now
}

// readProcess returns false for processes that are not watched or are exiting. Until the runtime executes the
// container's program, a process has none of the variables and is not watched.
func readProcess(dir, namespace string) (process, bool) {
	environment, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return process{}, false
	}
	p := process{namespace: namespace}
	for variable := range strings.SplitSeq(string(environment), "\x00") {
		switch name, value, _ := strings.Cut(variable, "="); name {
		case Pod:
			p.pod = value
		case Interfaces:
			p.interfaces = strings.Split(value, ",")
		}
	}
	// The start time is the 20th field after the name in parentheses, which may contain spaces.
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if err != nil || len(fields) < 20 || fields[0] == "Z" || len(p.interfaces) == 0 {
		return process{}, false
	}
	p.id = fmt.Sprintf("%s started at %s", filepath.Base(dir), fields[19])
	return p, true
}

// readLinks returns the links in a namespace, keyed by name. It sets parent only for macvlans: a veth also has a parent
// index, but that is its peer's index.
func readLinks(path string) (map[string]link, error) {
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = namespace.Close() }() // used only for reading
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	addresses, err := handle.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	found, err := handle.LinkList()
	if err != nil {
		return nil, err
	}
	links := map[string]link{}
	for _, l := range found {
		attributes, parent := l.Attrs(), 0
		if _, macvlan := l.(*netlink.Macvlan); macvlan {
			parent = attributes.ParentIndex
		}
		links[attributes.Name] = link{parent: parent,
			addressed: slices.ContainsFunc(addresses, func(address netlink.Addr) bool {
				return address.LinkIndex == attributes.Index
			})}
	}
	return links, nil
}
