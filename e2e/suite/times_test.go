package suite

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var samples = flag.Int("samples", 5, "how many pods of each kind are measured")

// The times from create to Ready of pods with more and more interfaces, and how long the runtime waited for the driver. They are
// printed, not asserted.
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
			e.apply(documents(topology(template, strings.Join(text[:n+1], "\n- ")), claimTemplate(template, classes...)))
			e.offer(links...)
		}
		before := e.hooks()
		times := e.loop(fmt.Sprintf("n%d", n), template, *samples)
		slices.Sort(times)
		after := e.hooks()
		t.Logf("%d interfaces: create to Ready P50 %s  P99 %s; RunPodSandbox waited %.1f ms for the driver on average", n, at(times, 50), at(times, 99),
			1000*(after.seconds-before.seconds)/max(1, after.count-before.count))
	}
}

type hooks struct{ seconds, count float64 }

// hooks is how long RunPodSandbox has waited for the driver.
func (e *env) hooks() hooks {
	e.Helper()
	var now hooks
	e.eventually("the driver has metrics", func(ctx context.Context) (bool, error) {
		metrics, err := e.metrics(ctx)
		now = hooks{}
		for name, value := range metrics {
			switch {
			case strings.HasPrefix(name, `dra_network_nri_seconds_sum{event="RunPodSandbox"`):
				now.seconds += value
			case strings.HasPrefix(name, `dra_network_nri_seconds_count{event="RunPodSandbox"`):
				now.count += value
			}
		}
		return err == nil, err
	})
	return now
}
