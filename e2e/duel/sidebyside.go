package duel

import (
	"context"
	"errors"
	"fmt"
)

// interfacesSideBySide returns the numbers of interfaces that are measured side by side. They are fewer than in the
// other stage, with more samples each.
func interfacesSideBySide() []int { return []int{1, 4} }

// sideBySideLoad is the Load of side-by-side series, and moreSamples multiplies the number of pods in them.
const (
	sideBySideLoad = "side by side"
	moreSamples    = 2
)

// sideBySide creates the clusters for all contestants at the same time, and then creates pods sequentially, on each
// cluster in turn. This reveals differences that are smaller than the variation in the machine's speed over 15 minutes.
// The drawbacks are that the idle clusters of the other contestants run at the same time, and that concurrent pods are
// not measured. Pods without interfaces are created on each cluster, so contestants that do not provide interfaces are
// omitted.
//
// If a contestant does not start, its name is added to Skipped, and the other contestants continue. If a pod does not
// become Ready, the stage ends for all contestants, because there would be less load from other clusters for the
// remaining ones. Earlier measurements are kept.
func sideBySide(ctx context.Context, options Options, chosen []contestant, r *Results) (failed error) {
	var all []*measurement
	for _, c := range chosen {
		if len(c.kinds) == 0 {
			continue
		}
		_, _ = fmt.Fprintf(options.Progress, "side by side: %s\n", c.name)
		separate := options
		separate.Cluster = fmt.Sprintf("%s-%d", options.Cluster, len(all))
		m, err := enterSideBySide(ctx, separate, c, r)
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		if err != nil {
			r.Skipped[c.name+", side by side"] = err.Error()
			continue
		}
		defer func() {
			m.pods.stop()
			failed = errors.Join(failed, m.leave(ctx))
		}()
		all = append(all, m)
	}
	if len(all) == 0 { // empty results would replace the results of an earlier run
		return nil
	}
	err := inTurn(ctx, moreSamples*options.Rounds*options.Samples, all...)
	for _, m := range all {
		_, _ = fmt.Fprintf(options.Progress, "side by side: %s\n", m.name)
		if restarted := m.checkDaemon(context.WithoutCancel(ctx)); restarted != nil {
			r.Skipped[m.name+", side by side"] = restarted.Error()
			continue
		}
		m.keepCourses(sideBySideLoad)
	}
	if err != nil {
		r.Skipped["side by side"] = fmt.Sprintf("not whole: %v", err)
	}
	if options.Keep != nil {
		err = options.Keep(r)
	}
	return errors.Join(ctx.Err(), err)
}

// enterSideBySide starts a contestant on its own cluster, and prepares its pods. If it returns an error, nothing from
// the cluster remains.
func enterSideBySide(ctx context.Context, options Options, c contestant, r *Results) (*measurement, error) {
	a, err := enter(ctx, options)
	if err != nil {
		return nil, err
	}
	m := &measurement{arena: a, contestant: c, results: r}
	err = c.start(ctx, a)
	if err == nil {
		var started usage
		started, err = a.use(ctx, c.daemon)
		m.pid = started.pid
	}
	if err == nil {
		err = m.prepare(ctx, interfacesSideBySide())
	}
	if err != nil {
		return nil, errors.Join(err, a.leave(ctx))
	}
	return m, nil
}

// checkDaemon returns an error if the daemon has been restarted since the contestant was started, because its counters
// have then been lost.
func (m *measurement) checkDaemon(ctx context.Context) error {
	now, err := m.use(ctx, m.daemon)
	if err == nil && now.pid != m.pid {
		err = errRestarted
	}
	return err
}
