package observer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindings(t *testing.T) {
	web := process{id: "7 started at 1", pod: "web", namespace: "a", interfaces: []string{"net1", "net2"}}
	whole := map[string]link{"net1": {addressed: true}, "net2": {parent: 5, addressed: true}}
	half := map[string]link{"net1": {addressed: true}, "net2": {parent: 5}}
	tests := map[string]struct {
		first, second reading
		want          []string
	}{
		"all there": {
			first: reading{processes: []process{web}, namespaces: map[string]map[string]link{"a": whole}},
		},
		"no address": {
			first:  reading{processes: []process{web}, namespaces: map[string]map[string]link{"a": half}},
			second: reading{processes: []process{web}, namespaces: map[string]map[string]link{"a": half}},
			want:   []string{"pod web: process 7 started at 1 runs without net2"},
		},
		"the process was ending": {
			first:  reading{processes: []process{web}, namespaces: map[string]map[string]link{"a": {}}},
			second: reading{namespaces: map[string]map[string]link{"a": {}}},
		},
		"another process has its number": {
			first: reading{processes: []process{web}, namespaces: map[string]map[string]link{"a": {}}},
			second: reading{processes: []process{{id: "7 started at 2", pod: "db", namespace: "a",
				interfaces: []string{"net1"}}}, namespaces: map[string]map[string]link{"a": {}}},
		},
		"two use what one may": {
			first:  reading{namespaces: map[string]map[string]link{"a": whole, "b": half}},
			second: reading{namespaces: map[string]map[string]link{"a": whole, "b": half}},
			want:   []string{"uplink is used in 2 namespaces concurrently"},
		},
		"it went from one to the other": {
			first:  reading{namespaces: map[string]map[string]link{"a": whole, "b": half}},
			second: reading{namespaces: map[string]map[string]link{"a": {}, "b": half}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for what, still := range New("", map[int]string{5: "uplink"}).violations(test.first) {
				if still(test.second) {
					got = append(got, what)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
