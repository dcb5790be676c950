package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Differences describes each difference in one sentence. It matches links by name or, failing that, by index and kind.
// It does not compare the MAC addresses of bridges, which by default are taken from a port, or the carrier, which
// depends on the cable. It ignores new alternative names, because udev adds them.
func Differences(before, after View) []string {
	differences := []string{}
	seen := map[int]bool{} // indexes of links in after that also exist in before
	for i := range before.Interfaces {
		previous := &before.Interfaces[i]
		current := find(after.Interfaces, previous)
		if current == nil {
			differences = append(differences, fmt.Sprintf("link %s (%s) is gone", previous.Name, previous.Kind))
			continue
		}
		seen[current.Index] = true
		differences = append(differences, compare(previous, current)...)
	}
	for i := range after.Interfaces {
		if current := &after.Interfaces[i]; !seen[current.Index] {
			differences = append(differences, fmt.Sprintf("link %s (%s) is new", current.Name, current.Kind))
		}
	}
	for _, route := range missing(before.Routes, after.Routes) {
		differences = append(differences, fmt.Sprintf("the route %q is gone", route))
	}
	for _, route := range missing(after.Routes, before.Routes) {
		differences = append(differences, fmt.Sprintf("the route %q is new", route))
	}
	return differences
}

func find(interfaces []Interface, wanted *Interface) *Interface {
	for i := range interfaces {
		if interfaces[i].Name == wanted.Name {
			return &interfaces[i]
		}
	}
	for i := range interfaces {
		if interfaces[i].Index == wanted.Index && interfaces[i].Kind == wanted.Kind {
			return &interfaces[i]
		}
	}
	return nil
}

func compare(previous, current *Interface) []string {
	var differences []string
	differs := func(what string, before, after any) {
		if before != after {
			differences = append(differences,
				fmt.Sprintf("link %s: %s is %v, was %v", previous.Name, what, after, before))
		}
	}
	differs("the name", previous.Name, current.Name)
	if previous.Kind != "bridge" {
		differs("the MAC address", previous.MAC, current.MAC)
	}
	differs("the MTU", previous.MTU, current.MTU)
	differs("up", previous.Up, current.Up)
	differs("the master", cmp.Or(previous.Master, "none"), cmp.Or(current.Master, "none"))
	for _, list := range []struct {
		what    string
		changed []string
	}{
		{"lost the alternative names", missing(previous.AltNames, current.AltNames)},
		{"lost the addresses", missing(previous.Addresses, current.Addresses)},
		{"gained the addresses", missing(current.Addresses, previous.Addresses)},
	} {
		if len(list.changed) > 0 {
			differences = append(differences, fmt.Sprintf("link %s has %s %s", previous.Name, list.what,
				strings.Join(list.changed, ", ")))
		}
	}
	return differences
}

func missing[T comparable](list, rest []T) []T {
	var absent []T
	for _, item := range list {
		if !slices.Contains(rest, item) {
			absent = append(absent, item)
		}
	}
	return absent
}
