package suite

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var samples = flag.Int("samples", 5, "how many pods of each kind are measured")

// TestTimesByInterfaces measures the time from creation to Ready for pods with increasing numbers of interfaces, and
// how long the runtime waits for the driver. The times are printed, not asserted.
func TestTimesByInterfaces(t *testing.T) {
	e := newEnv(t, "times")
	links := make([]string, 8)
	var steps strings.Builder
	for i := range links {
		links[i] = fmt.Sprintf("ti%d", i)
		e.veth(links[i])
		fmt.Fprintf(&steps, `
- name: s%d
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "ti%d"'}
  config: {ipam: {type: host-local, subnet: 10.16%d.0.0/24}}`, i, i, i)
	}
	e.apply(expose("ti", "macvlan", true, links...))
	for _, n := range []int{0, 1, 2, 4, 8} {
		template := ""
		if n > 0 {
			template = fmt.Sprintf("ti%d", n)
			text, classes := strings.Split(steps.String(), "\n- "), []string{}
			for i := range n {
				classes = append(classes, fmt.Sprintf("%s-s%d", template, i))
			}
			e.apply(documents(topology(template, strings.Join(text[:n+1], "\n- ")),
				claimTemplate(template, classes...)))
			e.offer(links...)
		}
		before := e.hooks()
		times := e.loop(fmt.Sprintf("n%d", n), template, *samples)
		slices.Sort(times)
		after := e.hooks()
		t.Logf("%d interfaces: create to Ready P50 %s  P99 %s; RunPodSandbox waited %.1f ms for the driver on average",
			n, percentile(times, 50), percentile(times, 99),
			1000*(after.seconds-before.seconds)/max(1, after.count-before.count))
	}
}

// Measure how quickly pods with whole links can replace one another, with graceful and forced deletion. The same run
// also measures pods without claims, and pods whose claims are for a driver that does nothing. With forced deletion,
// the next pod gets a device that is still being released. The results are printed, not asserted.
func TestTimesOfChurn(t *testing.T) {
	e := newEnv(t, "churn")
	var links []string
	for i := range 24 { // enough for all pods that may be terminating at the same time, even with four links each
		links = append(links, fmt.Sprintf("ch%d", i))
		e.veth(links[i])
	}
	step := func(name, plugin string) string {
		return fmt.Sprintf(`
- name: %s
  type: %s
  selector: {cel: 'device.attributes["dra.networking"].ifName.startsWith("ch")'}`, name, plugin)
	}
	four := step("a", "netdev") + step("b", "netdev") + step("c", "netdev") + step("d", "netdev")
	e.apply(documents(
		strings.Replace(expose("ch", "netdev", false, links...), "supportedCNIPlugins: [",
			"supportedCNIPlugins: [{name: host-device, exclusive: true}, ", 1),
		topology("ch-netdev", step("link", "netdev")), claimTemplate("netdev", "ch-netdev-link"),
		topology("ch-host-device", step("link", "host-device")), claimTemplate("host-device", "ch-host-device-link"),
		topology("ch-four", four), claimTemplate("four", "ch-four-a", "ch-four-b", "ch-four-c", "ch-four-d"),
		claimTemplate("idle", "idle"), claimTemplate("idle-four", "idle", "idle", "idle", "idle")))
	e.offer(links...)
	e.startIdleDriver(len(links))
	for _, deletion := range []struct {
		name    string
		options metav1.DeleteOptions
	}{{"gracefully", metav1.DeleteOptions{}}, {"by force", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}}} {
		for _, template := range []string{"", "idle", "netdev", "host-device", "idle-four", "four"} {
			before := e.driverMetrics()
			times := e.loopWith(strings.ReplaceAll(fmt.Sprintf("%s-%s", cmp.Or(template, "plain"), deletion.name), " ",
				"-"), template, *samples, deletion.options)
			slices.Sort(times)
			t.Logf("deleted %-10s %-14s create to Ready P50 %s  P90 %s", deletion.name, cmp.Or(template, "no claim"),
				percentile(times, 50), percentile(times, 90))
			for _, line := range averages(before, e.driverMetrics()) {
				t.Log("    ", line)
			}
		}
	}
}

type hooks struct{ seconds, count float64 }

// hooks returns the total time that RunPodSandbox calls have spent waiting for the driver, and the number of calls.
func (e *env) hooks() hooks {
	e.Helper()
	var now hooks
	for name, value := range e.driverMetrics() {
		switch {
		case strings.HasPrefix(name, `dra_network_nri_seconds_sum{event="RunPodSandbox"`):
			now.seconds += value
		case strings.HasPrefix(name, `dra_network_nri_seconds_count{event="RunPodSandbox"`):
			now.count += value
		}
	}
	return now
}

// driverMetrics returns the driver's metrics by name and labels.
func (e *env) driverMetrics() (values map[string]float64) {
	e.Helper()
	e.eventually("the driver has metrics", func(ctx context.Context) (bool, error) {
		var err error
		values, err = e.metrics(ctx)
		return err == nil, err
	})
	return values
}

// averages returns one line for each driver histogram that measures seconds: its mean between two reads.
func averages(before, after map[string]float64) []string {
	var lines []string
	for name, sum := range after {
		histogram, labels, found := strings.Cut(name, "_seconds_sum{")
		count := histogram + "_seconds_count{" + labels
		if times := after[count] - before[count]; found && times > 0 {
			mean := time.Duration((sum - before[name]) / times * float64(time.Second))
			lines = append(lines, fmt.Sprintf("%-80s %4.0f times, %s on average", histogram+"{"+labels, times,
				mean.Round(10*time.Microsecond)))
		}
	}
	slices.Sort(lines)
	return lines
}

// Measure the time from the end of a chain that is too slow for RunPodSandbox to the start of the container. By the end
// of the chain, the kubelet has given up and must be woken. The result is printed, not asserted.
func TestTimesOfLateChains(t *testing.T) {
	e := newEnv(t, "latetimes")
	e.veth("lt0")
	e.apply(slowMacvlan)
	e.apply(documents(expose("lt0", "slow-macvlan", true, "lt0"), topology("lt0", `
- name: link
  type: slow-macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "lt0"'}
  config: {seconds: 1, ipam: {type: host-local, subnet: 10.175.0.0/24}}`), claimTemplate("lt0", "lt0-link")))
	e.offer("lt0")
	times := make([]time.Duration, 0, *samples)
	for i := range *samples {
		name := fmt.Sprintf("p%d", i)
		e.create(watchedPod(name, "resourceClaimTemplateName: lt0", "net1"))
		var processes []int // retry, since a process in the middle of execve is not found
		e.moment("the container runs", func() bool { processes = e.containersOf(name); return len(processes) > 0 })
		times = append(times, e.started(processes[0]).Sub(e.chainEnded(name)))
		e.ready(name)
		e.deleting(name)
		e.gone(name)
	}
	slices.Sort(times)
	t.Logf("from the end of a late chain to the start of the container: P50 %s  P99 %s  (%d pods)",
		percentile(times, 50), percentile(times, 99), len(times))
}

// chainEnded returns the time at which the last ADD for a pod's claim finished, according to the CNI log.
func (e *env) chainEnded(pod string) (end time.Time) {
	e.Helper()
	logs := e.filesOnNode("/var/log/dra-network", e.namespace+"_"+pod+"-net-*", "*.jsonl")
	if len(logs) == 0 {
		e.Fatalf("there is no log of CNI calls for pod %s", pod)
	}
	for _, line := range e.lines(logs[len(logs)-1]) {
		var call struct {
			Time              time.Time
			Duration, Command string
		}
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			e.Fatal(err)
		}
		took, err := time.ParseDuration(call.Duration)
		if err != nil {
			e.Fatal(err)
		}
		if call.Command == "ADD" {
			end = call.Time.Add(took)
		}
	}
	return end
}
