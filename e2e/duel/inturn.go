package duel

import (
	"context"
	"fmt"
	"math/rand/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// course is a series of pods of one kind, created sequentially.
type course struct {
	kind         string
	interfaces   int
	milliseconds []float64
	// hooks and plugins are the durations of RunPodSandbox and of the CNI plugins within it, in milliseconds per pod.
	hooks, plugins []float64
}

// prepare creates the objects for pods without interfaces from the contestant and, for each kind of interface, for pods
// with each of the given numbers of interfaces. It then starts watching pods. If it returns no error, the caller must
// stop the watch.
func (m *measurement) prepare(ctx context.Context, numbers []int) (err error) {
	m.courses = []*course{{kind: none}}
	for _, kind := range m.kinds {
		for _, n := range numbers {
			if err := m.apply(ctx, m.objects(kind, n)); err != nil {
				return err
			}
			m.courses = append(m.courses, &course{kind: kind, interfaces: n})
		}
	}
	m.podName = m.prefix()
	m.pods, err = m.follow(ctx)
	return err
}

// inTurn creates pods sequentially. Each iteration creates one pod for each course in each measurement, so that changes
// in the machine's speed affect all courses. The order differs between iterations, so that no course always follows the
// same other course, but it is the same in each run. The first pod in each course is not counted.
func inTurn(ctx context.Context, samples int, measurements ...*measurement) error {
	type entry struct {
		*measurement
		course int
	}
	var entries []entry
	for _, m := range measurements {
		for i := range m.courses {
			entries = append(entries, entry{m, i})
		}
	}
	order := rand.New(rand.NewPCG(1, 1)) // an arbitrary seed
	for iteration := range samples + 1 {
		for _, i := range order.Perm(len(entries)) {
			e := entries[i]
			name := fmt.Sprintf("%s-%d-%d", e.podName, iteration, e.course)
			if err := e.run(ctx, e.pods, e.courses[e.course], name, iteration > 0); err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
		}
	}
	return nil
}

// keepCourses adds the measurements from all courses to the results.
func (m *measurement) keepCourses(load string) {
	for _, c := range m.courses {
		m.keep(Series{Kind: c.kind, Interfaces: c.interfaces, Load: load, Milliseconds: c.milliseconds,
			HookMilliseconds: c.hooks, PluginMilliseconds: c.plugins})
	}
}

// single creates pods sequentially. The daemon's resource usage is totaled over all of them.
func (m *measurement) single(ctx context.Context) error {
	if err := m.prepare(ctx, interfaces()); err != nil {
		return err
	}
	defer m.pods.stop()
	if err := m.counting(ctx, func() error { return inTurn(ctx, m.options.Samples, m) }); err != nil {
		return err
	}
	m.keepCourses("single")
	return nil
}

// run creates the next pod in a course. For pods with interfaces, it also measures the hook.
func (m *measurement) run(ctx context.Context, f *follower, c *course, name string, counts bool) error {
	asked := request{}
	if c.interfaces > 0 {
		asked = m.makeRequest(c.kind, c.interfaces)
		m.cost.Pods++
		m.cost.Attachments += c.interfaces
	}
	next := func() error {
		took, err := m.makeReady(ctx, f, name, asked, metav1.DeleteOptions{})
		if err != nil {
			return err
		}
		if counts {
			c.milliseconds = append(c.milliseconds, took)
		}
		_, err = f.wait(ctx, "pod "+name+" is gone", gone(name))
		return err
	}
	if counts && c.interfaces > 0 {
		return m.timeHook(ctx, c, next)
	}
	return next()
}

// timeHook calls do, which creates a pod, and adds to the course how long RunPodSandbox waited in the meantime,
// according to the increase in the daemon's histograms.
func (m *measurement) timeHook(ctx context.Context, c *course, do func() error) error {
	if m.hook == "" {
		return do()
	}
	before, err := m.metrics(ctx, m.port)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := m.metrics(ctx, m.port)
	if err != nil {
		return err
	}
	grown := func(prefix string) float64 { return 1000 * (sumOf(after, prefix) - sumOf(before, prefix)) }
	c.hooks = append(c.hooks, grown(m.hook))
	if m.plugin != "" {
		c.plugins = append(c.plugins, grown(m.plugin))
	}
	return nil
}
