package offers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompare(t *testing.T) {
	a, b := Offer{Pool: "n/a", Name: "a", Policy: "p", Use: "shared"}, Offer{Pool: "n/b", Name: "b", Policy: "p",
		Use: "exclusive"}
	other := a
	other.Policy, other.Plugins, other.Attributes = "q", "macvlan", "x/rail=1"
	elsewhere := a
	elsewhere.Pool = "n/c"
	for name, test := range map[string]struct {
		before, after []Offer
		want          []Change
	}{
		"nothing":  {nil, nil, []Change{}},
		"the same": {[]Offer{a, b}, []Offer{b, a}, []Change{}},
		"added":    {[]Offer{b}, []Offer{b, a}, []Change{{Kind: Added, Pool: "n/a", Name: "a", Offer: &a}}},
		"removed":  {[]Offer{a, b}, []Offer{b}, []Change{{Kind: Removed, Pool: "n/a", Name: "a", Offer: &a}}},
		"changed": {[]Offer{a}, []Offer{other},
			[]Change{{Kind: Changed, Pool: "n/a", Name: "a",
				Fields: []Field{{"policy", "p", "q"}, {"plugins", "", "macvlan"}, {"attributes", "", "x/rail=1"}}}}},
		"another pool": {[]Offer{elsewhere}, []Offer{a},
			[]Change{{Kind: Added, Pool: "n/a", Name: "a", Offer: &a},
				{Kind: Removed, Pool: "n/c", Name: "a", Offer: &elsewhere}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Compare(test.before, test.after)); diff != "" {
				t.Errorf("wrong changes (-want +got):\n%s", diff)
			}
		})
	}
}
