package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"
)

// matrix records which combinations of uses the scheduler allowed on a machine.
type matrix struct {
	nics
	rows []series
	mu   sync.Mutex
	seen map[string]bool // whether the last use was allowed, by row key and arrival
}

func key(s series, arrival string) string { return s.names() + " " + arrival }

// used reports whether the last use of a series was allowed, and whether this is known.
func (m *matrix) used(s series, arrival string) (used, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	used, known = m.seen[key(s, arrival)]
	return used, known
}

// fill tries every series with every arrival, each on a separate NIC. Each arrival has its own node, because scheduling
// a pod takes longer if the node has more pools.
func (m *matrix) fill(t *testing.T, p *plane) {
	t.Helper()
	policies, recording := m.policies(t), record(t, machine(len(m.rows), m.functions))
	t.Run("by", func(t *testing.T) {
		for _, arrival := range allArrivals() {
			t.Run(arrival, func(t *testing.T) {
				t.Parallel()
				n := p.publish(t, m.name+"-"+arrival, recording, policies, p.encodings...)
				n.offers(t, len(m.rows)*m.entries())
				m.fillBy(t, n, arrival)
			})
		}
	})
}

// atOnce is the number of series to try concurrently on a node.
const atOnce = 8

// fillBy tries every series with one arrival.
func (m *matrix) fillBy(t *testing.T, n node, arrival string) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(atOnce)
	var refusals refusals
	for i, s := range m.rows {
		if !slices.Contains(s.arrivals(), arrival) {
			continue
		}
		group.Go(func() error {
			used, err := n.try(t.Context(), nicName(i), arrival, s, &refusals)
			if err != nil {
				t.Errorf("%s: %v", s.names(), err)
				return nil // try the others
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.seen[key(s, arrival)] = used
			return nil
		})
	}
	if m.hidden {
		group.Go(func() error {
			pod, err := n.pod(t.Context(), "hidden", false, claim(request{class: "host-device"}))
			if err != nil {
				return err
			}
			used, err := refusals.expect(t.Context(), n, pod)
			if used {
				err = errors.New("a pod got a hidden NIC")
			}
			return err
		})
	}
	if err := errors.Join(group.Wait(), refusals.stand(n)); err != nil {
		t.Error(err)
	}
	for _, s := range m.rows {
		if used, known := m.used(s, arrival); known && used != s.fits() {
			t.Errorf("%s, arrival %s: the last use was allowed: %t, want %t", s.names(), arrival, used, s.fits())
		}
	}
}

// String returns a table with one row for each combination of existing uses, and one column for each additional use.
func (m *matrix) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: uses that are possible next to existing ones (%s)\n", m.title, strings.Join(allArrivals(), "/"))
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	// writing to a strings.Builder never fails
	line := func(cells []string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }
	line(append([]string{"in use"}, strings.Split(series(m.uses).names(), ", ")...))
	for row := range slices.Chunk(m.rows, len(m.uses)) {
		cells := []string{row[0][:len(row[0])-1].names()}
		for _, s := range row {
			cells = append(cells, m.cell(s))
		}
		line(cells)
	}
	_ = w.Flush() // as above
	return out.String()
}

// cell returns a single word if the result is the same for all arrivals, and otherwise one word for each arrival.
// Incorrect results are marked.
func (m *matrix) cell(s series) string {
	var words []string
	for _, arrival := range s.arrivals() {
		used, known := m.used(s, arrival)
		word := map[bool]string{true: "yes", false: "no"}[used]
		switch {
		case !known:
			word = "?"
		case used != s.fits():
			word += "!"
		}
		words = append(words, word)
	}
	if len(slices.Compact(slices.Clone(words))) == 1 {
		return words[0]
	}
	return strings.Join(words, "/")
}
