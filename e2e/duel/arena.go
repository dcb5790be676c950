package duel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// arena is a cluster that runs one contestant.
type arena struct {
	options Options
	cluster *lab.Cluster
	client  kubernetes.Interface
	// stop terminates processes outside the cluster; it may be nil.
	stop func() error
}

// enter creates a cluster with the links that all contestants use. The peers directory is in every cluster's CNI plugin
// path, so that all nodes are identical.
func enter(ctx context.Context, options Options) (*arena, error) {
	cluster, err := lab.Up(ctx, lab.Options{Name: options.Cluster, Clone: options.Clone,
		ExtraCNIDirs: peerPlugins(options.Peers)})
	if err != nil {
		return nil, err
	}
	a := &arena{options: options, cluster: cluster}
	config, err := cluster.RESTConfig()
	if err == nil {
		a.client, err = kubernetes.NewForConfig(config)
	}
	if err == nil {
		err = errors.Join(a.addLinks(linkPrefix, 0, devices), a.addLinks(sharedPrefix, 0, slices.Max(interfaces())))
	}
	if err != nil {
		return nil, errors.Join(err, a.leave(ctx))
	}
	return a, nil
}

// peerPlugins returns the peers directory, whose CNI plugins the node uses.
func peerPlugins(dir string) []string {
	if dir == "" {
		return nil
	}
	return []string{dir}
}

// leave tears down the cluster and the processes that were started outside of it. It works even if the context has been
// canceled, so that an interrupted run does not leave a cluster behind.
func (a *arena) leave(ctx context.Context) error {
	var err error
	if a.stop != nil {
		err = a.stop()
	}
	return errors.Join(err, a.cluster.Down(context.WithoutCancel(ctx)))
}

func (a *arena) addLinks(prefix string, first, end int) error {
	for i := first; i < end; i++ {
		if err := a.cluster.AddVeth(fmt.Sprintf("%s%d", prefix, i), fmt.Sprintf("peer-%s%d", prefix, i)); err != nil {
			return err
		}
	}
	return nil
}

// apply applies objects. It retries for 30 seconds, because webhooks and custom resource definitions might not be ready
// yet.
func (a *arena) apply(ctx context.Context, objects string) error {
	end := time.Now().Add(30 * time.Second)
	for {
		cmd := a.cluster.Command(ctx, "kubectl", "apply", "-f", "-")
		var output strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(objects), &output, &output
		err := a.cluster.Run(cmd)
		if err == nil || time.Now().After(end) || ctx.Err() != nil {
			if err != nil {
				err = fmt.Errorf("cannot apply: %w: %s\n%s", err, output.String(), objects)
			}
			return err
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// lost returns the sorted names of the moved links that are missing from the node; links is the total number of moved
// links. It waits up to half a minute for links that are still being returned.
func (a *arena) lost(ctx context.Context, links int) ([]string, error) {
	var missing []string
	for range 30 {
		handle, err := a.cluster.Netlink()
		if err != nil {
			return nil, err
		}
		list, err := handle.LinkList()
		handle.Close()
		if err != nil {
			return nil, err
		}
		have := map[string]bool{}
		for _, link := range list {
			have[link.Attrs().Name] = true
		}
		missing = nil
		for i := range links {
			if name := fmt.Sprintf("%s%d", linkPrefix, i); !have[name] {
				missing = append(missing, name)
			}
		}
		if len(missing) == 0 {
			break
		}
		if err := pause(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// usage is the resource usage of a process since its start.
type usage struct {
	pid  int
	cpu  float64 // in seconds, including children that have exited
	peak float64 // MiB
}

// ticks is the number of clock ticks per second in /proc/PID/stat (proc(5), sysconf(_SC_CLK_TCK)): 100 on all Linux
// platforms that Go supports.
const ticks = 100

// use returns the resource usage of the daemon that runs program, or zero if program is empty. It runs a command on the
// node that finds the process by the path of the program in its container. The CPU time includes CNI plugins that the
// daemon has started and waited for.
func (a *arena) use(ctx context.Context, program string) (usage, error) {
	if program == "" {
		return usage{}, nil
	}
	output, err := a.cluster.Exec(ctx, "sh", "-c", `for p in /proc/[0-9]*; do
  if [ "$(readlink $p/exe)" = "$0" ]; then echo "pid ${p#/proc/}"; cat $p/stat; grep VmHWM $p/status; fi
done`, program)
	if err != nil {
		return usage{}, err
	}
	return parseUsage(program, string(output))
}

// parseUsage parses the command's output for a program: the PID, the lines in /proc/PID/status and the times in
// /proc/PID/stat (proc(5)). It returns an error if two processes run the program, since they cannot be distinguished.
func parseUsage(program, text string) (u usage, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if pid, found := strings.CutPrefix(line, "pid "); found {
			if u.pid != 0 {
				return u, fmt.Errorf("cannot measure %s: it runs more than once", program)
			}
			u.pid, err = strconv.Atoi(pid)
		} else if size, found := strings.CutPrefix(line, "VmHWM:"); found {
			var kilobytes float64
			_, err = fmt.Sscanf(size, "%g kB", &kilobytes)
			u.peak = kilobytes / 1024
		} else if _, fields, found := strings.Cut(line, ") "); found { // after the name, which may contain spaces
			words := strings.Fields(fields)
			if len(words) < 15 {
				return u, fmt.Errorf("cannot measure %s: its stat is %q", program, line)
			}
			for _, word := range words[11:15] { // utime, stime, cutime, cstime
				count, parseErr := strconv.ParseFloat(word, 64)
				u.cpu, err = u.cpu+count/ticks, errors.Join(err, parseErr)
			}
		}
		if err != nil {
			return u, fmt.Errorf("cannot measure %s: %w", program, err)
		}
	}
	if u.pid == 0 {
		return u, fmt.Errorf("cannot measure %s: it does not run", program)
	}
	return u, nil
}

// metrics returns the metrics page that a daemon serves on a node port. The difference between two pages is the usage
// in the meantime. While the daemon runs, histogram sums only increase; counting and checkDaemon verify that the daemon
// has not been restarted.
func (a *arena) metrics(ctx context.Context, port int) (string, error) {
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (
		net.Conn, error,
	) {
		return a.cluster.DialContext(ctx, network, address)
	}}}
	defer client.CloseIdleConnections()
	asked, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", port), nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(asked)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // used only for reading
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// sumOf returns the sum of all metrics on a page whose names begin with a prefix.
func sumOf(page, prefix string) (sum float64) {
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		if value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64); err == nil {
			sum += value
		}
	}
	return sum
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
