package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/e2e/internal/process"
)

// nodeState contains everything that attachments can leave behind on a node, sorted. If the states before and after a
// test are equal, nothing has leaked.
type nodeState struct {
	Links   []string // on the node, with the properties that a restored device must have
	Pins    []string // network namespace pins, except those created by the runtime
	Files   []string // allocated addresses, CDI specs, and other files of plugins and the driver
	Journal []string // claims, sandboxes and leftovers, as reported by the driver
	Plugins int      // running CNI plugins
}

// nodeState reads the state of the node.
func (e *env) nodeState(ctx context.Context) (nodeState, error) {
	var state nodeState
	var errs [3]error
	state.Links, errs[0] = e.nodeLinks()
	state.Files, errs[1] = e.nodeFiles()
	state.Journal, errs[2] = e.journal(ctx)
	for _, pin := range e.filesOnNode("/var/run/netns/*") {
		if name := filepath.Base(pin); !isRuntimesPin(name) {
			state.Pins = append(state.Pins, name)
		}
	}
	state.Plugins = len(e.processes("slow-macvlan"))
	return state, errors.Join(errs[:]...)
}

// runtimesPin matches the names that container runtimes assign to network namespaces. In containerd, these names begin
// with "cni-"; in CRI-O, they are UUIDs.
var runtimesPin = regexp.MustCompile(`^cni-|^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// isRuntimesPin reports whether a network namespace pin was created by the container runtime and not by the driver.
func isRuntimesPin(name string) bool { return runtimesPin.MatchString(name) }

// state returns the current nodeState. It retries until the state can be read.
func (e *env) state() nodeState {
	e.Helper()
	var state nodeState
	e.eventually("the node can be looked at", func(ctx context.Context) (bool, error) {
		var err error
		state, err = e.nodeState(ctx)
		return err == nil, err
	})
	return state
}

// asItWas waits until the state of the node matches an earlier state.
func (e *env) asItWas(before nodeState) {
	e.Helper()
	e.eventually("the node is as it was", func(ctx context.Context) (bool, error) {
		now, err := e.nodeState(ctx)
		if diff := cmp.Diff(before, now); err == nil && diff != "" {
			err = fmt.Errorf("(-before +now):\n%s", diff)
		}
		return err == nil, err
	})
}

// nodeLinks returns the node's links, except the host ends of the pods' first interfaces.
func (e *env) nodeLinks() ([]string, error) {
	handle, err := e.cluster.Netlink()
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	found, err := handle.LinkList()
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for _, link := range found {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	var links []string
	for _, link := range found {
		attributes := link.Attrs()
		master := names[attributes.MasterIndex]
		if master == "node0" {
			continue
		}
		_, veth := link.(*netlink.Veth)
		links = append(links, fmt.Sprintf("%s %s %s mtu %d up %v master %q alias %q names %v veth %v", attributes.Name,
			link.Type(),
			attributes.HardwareAddr, attributes.MTU, attributes.Flags&net.FlagUp != 0, master, attributes.Alias,
			attributes.AltNames, veth))
	}
	slices.Sort(links)
	return links, nil
}

// lasting matches files that are unrelated to attachments: locks, host-local's last address, files of the cluster's own
// network, and the driver's journal, sockets and installed programs, which differ between versions.
var lasting = regexp.MustCompile(
	`/lock$|/last_reserved_ip|/results/(lab|cni-loopback)-|/journal\.db|\.sock$|/cni\.lock$|/actor\.lock$|/dra\.networking/bin/`,
)

func (e *env) nodeFiles() ([]string, error) {
	var files []string
	for _, dir := range []string{"/var/lib/cni", "/run/cni", "/var/run/cdi",
		"/var/lib/kubelet/plugins/dra.networking"} {
		root, err := e.cluster.NodePath(dir)
		if err != nil {
			return nil, err
		}
		err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed in the meantime
			}
			if err == nil && !entry.IsDir() && !lasting.MatchString(path) {
				files = append(files, dir+strings.TrimPrefix(path, root))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// journal returns all records in the driver's journal.
func (e *env) journal(ctx context.Context) ([]string, error) {
	var all []string
	for _, kind := range []string{"claims", "sandboxes", "leftovers"} {
		records, err := e.records(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, record := range records {
			all = append(all, kind+": "+string(record))
		}
	}
	return all, nil
}

// records returns the driver's records of one kind as JSON.
func (e *env) records(ctx context.Context, kind string) ([]json.RawMessage, error) {
	body, err := get(ctx, "http://driver/"+kind, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix",
			e.fileOnNode("/var/lib/kubelet/plugins/dra.networking/netdra.sock"))
	})
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(body, &list); err == nil {
		return list, nil
	}
	byKey := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &byKey); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", kind, err, body)
	}
	for _, record := range byKey {
		list = append(list, record)
	}
	return list, nil
}

// metrics returns the driver's metrics, keyed by name and labels.
func (e *env) metrics(ctx context.Context) (map[string]float64, error) {
	body, err := get(ctx, "http://127.0.0.1:9680/metrics", e.cluster.DialContext)
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		space := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if strings.HasPrefix(line, "#") || space < 0 {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line)[space+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		values[line[:space]] = value
	}
	return values, nil
}

// get requests a URL from an HTTP server over a connection opened by dial.
func get(
	ctx context.Context, address string, dial func(context.Context, string, string) (net.Conn, error),
) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // used only for reading
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", address, response.Status, body)
	}
	return body, err
}

// driverReady waits until the driver reports that pods with claims can start.
func (e *env) driverReady() {
	e.Helper()
	e.eventually("the driver is ready", func(ctx context.Context) (bool, error) {
		_, err := get(ctx, "http://127.0.0.1:9680/readyz", e.cluster.DialContext)
		return err == nil, err
	})
}

// processes returns the host PIDs of the processes on the node that run a program.
func (e *env) processes(program string) []int {
	e.Helper()
	pids, err := process.PIDs(e.processesOf(program)...)
	if err != nil {
		e.Fatal(err)
	}
	return pids
}

// processesOf matches the processes in the node's network namespace that run a program. This excludes processes in
// other clusters.
func (e *env) processesOf(program string) []process.Match {
	e.Helper()
	namespace, err := os.Readlink(e.fileOnNode("/proc/1/ns/net"))
	if err != nil {
		e.Fatal(err)
	}
	return []process.Match{process.Runs(program), process.InNamespace("net", namespace)}
}

// signal sends a signal to the processes of a program on the node. At least one such process must exist.
func (e *env) signal(program string, signal syscall.Signal) {
	e.Helper()
	pids := e.processes(program)
	if len(pids) == 0 {
		e.Fatalf("found no process of %s to send signal %s", program, signal)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			e.Fatal(err)
		}
	}
}

// controlled is the set of files that a test uses to control slow-macvlan.
type controlled struct {
	*env
	path string // on the node
}

func (e *env) controlled(name string) controlled {
	return controlled{env: e, path: "/run/cni/control-" + name}
}

// set creates a control file. The returned function, or the end of the test, removes the file.
func (c controlled) set(what string) (unset func()) {
	c.Helper()
	path := c.fileOnNode(c.path + "." + what)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		c.Fatal(err)
	}
	unset = func() { _ = os.Remove(path) }
	c.Cleanup(unset)
	return unset
}

// started returns the start time of a process.
func (e *env) started(pid int) time.Time {
	e.Helper()
	found, err := procfs.NewProc(pid)
	if err != nil {
		e.Fatal(err)
	}
	stat, err := found.Stat()
	if err != nil {
		e.Fatal(err)
	}
	uptime, err := os.ReadFile("/proc/uptime") // resolution of 10 ms; /proc/stat only has whole seconds
	if err != nil {
		e.Fatal(err)
	}
	var up float64
	if _, err := fmt.Sscan(string(uptime), &up); err != nil {
		e.Fatal(err)
	}
	ticks := float64(stat.Starttime)
	return time.Now().Add(-time.Duration((up - ticks/100) * float64(time.Second))) // 100 ticks per second in user space
}
