package offers

import (
	"cmp"
	"slices"
)

// Offer describes one published device. All fields are comparable, and a difference in any of them is a change.
type Offer struct {
	Pool     string `json:"pool"`
	Name     string `json:"name"`
	Policy   string `json:"policy"`
	Use      string `json:"use"`
	Plugins  string `json:"plugins"`
	Capacity string `json:"capacity,omitempty"`
	Consumes string `json:"consumes,omitempty"`
	// Attributes are the attributes that the policy adds, sorted by name.
	Attributes string `json:"attributes,omitempty"`
}

// Kinds of changes.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Change is the difference between two sets of policies for one device.
type Change struct {
	Kind string `json:"kind"`
	Pool string `json:"pool"`
	Name string `json:"name"`
	// Fields are the fields that differ if the device is offered both before and after.
	Fields []Field `json:"fields,omitempty"`
	// Offer is the added or removed device.
	Offer *Offer `json:"offer,omitempty"`
	// HeldBy are the claims that hold the device, as namespace/name.
	HeldBy []string `json:"heldBy,omitempty"`
}

// Field is a changed field.
type Field struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Compare returns the changes, sorted by pool and name. Pool and name identify a device, so a renamed device appears as
// removed and added.
func Compare(before, after []Offer) []Change {
	changes := []Change{}
	for i := range before {
		old := &before[i]
		switch found := find(after, old); {
		case found == nil:
			changes = append(changes, Change{Kind: Removed, Pool: old.Pool, Name: old.Name, Offer: old})
		case *found != *old:
			changes = append(changes, Change{Kind: Changed, Pool: old.Pool, Name: old.Name, Fields: fields(old, found)})
		}
	}
	for i := range after {
		if find(before, &after[i]) == nil {
			changes = append(changes, Change{Kind: Added, Pool: after[i].Pool, Name: after[i].Name, Offer: &after[i]})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool),
			cmp.Compare(a.Name, b.Name))
	})
	return changes
}

func find(among []Offer, wanted *Offer) *Offer {
	i := slices.IndexFunc(among, func(o Offer) bool { return o.Pool == wanted.Pool && o.Name == wanted.Name })
	if i < 0 {
		return nil
	}
	return &among[i]
}

func fields(before, after *Offer) []Field {
	all := []Field{
		{"policy", before.Policy, after.Policy}, {"use", before.Use, after.Use}, {"plugins", before.Plugins,
			after.Plugins},
		{"capacity", before.Capacity, after.Capacity}, {"consumes", before.Consumes, after.Consumes},
		{"attributes", before.Attributes, after.Attributes},
	}
	return slices.DeleteFunc(all, func(f Field) bool { return f.Before == f.After })
}
