package view

import (
	"fmt"
	"slices"
	"strings"
)

// Differences says, in one sentence each, what is not as it was. Links are the same if their name is, or else their
// index. The address of a bridge is not compared: it has that of one of its ports unless it was given one.
func Differences(before, after View) []string {
	differences := []string{}
	seen := map[int]bool{} // by index, the links of after that were there before
	for i := range before.Interfaces {
		was := &before.Interfaces[i]
		is := find(after.Interfaces, was)
		if is == nil {
			differences = append(differences, fmt.Sprintf("link %s (%s) is gone", was.Name, was.Kind))
			continue
		}
		seen[is.Index] = true
		differences = append(differences, compare(was, is)...)
	}
	for i := range after.Interfaces {
		if is := &after.Interfaces[i]; !seen[is.Index] {
			differences = append(differences, fmt.Sprintf("link %s (%s) was not there before", is.Name, is.Kind))
		}
	}
	for _, route := range missing(before.Routes, after.Routes) {
		differences = append(differences, fmt.Sprintf("the route %q is gone", route))
	}
	for _, route := range missing(after.Routes, before.Routes) {
		differences = append(differences, fmt.Sprintf("the route %q was not there before", route))
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

func compare(was, is *Interface) []string {
	var differences []string
	differs := func(what string, before, after any) {
		if before != after {
			differences = append(differences, fmt.Sprintf("link %s: %s is %v, was %v", was.Name, what, after, before))
		}
	}
	differs("the name", was.Name, is.Name)
	if was.Kind != "bridge" {
		differs("the MAC address", was.MAC, is.MAC)
	}
	differs("the MTU", was.MTU, is.MTU)
	differs("up", was.Up, is.Up)
	differs("the master", orNone(was.Master), orNone(is.Master))
	if lost := missing(was.AltNames, is.AltNames); len(lost) > 0 {
		differences = append(differences, fmt.Sprintf("link %s has lost the alternative names %s", was.Name,
			strings.Join(lost, ", ")))
	}
	if lost := missing(was.Addresses, is.Addresses); len(lost) > 0 {
		differences = append(differences, fmt.Sprintf("link %s has lost the addresses %s", was.Name,
			strings.Join(lost, ", ")))
	}
	if more := missing(is.Addresses, was.Addresses); len(more) > 0 {
		differences = append(differences, fmt.Sprintf("link %s has the new addresses %s", was.Name,
			strings.Join(more, ", ")))
	}
	return differences
}

func orNone(name string) string {
	if name == "" {
		return "none"
	}
	return name
}

// missing returns what the first list has and the second has not.
func missing[T comparable](list, from []T) []T {
	var absent []T
	for _, item := range list {
		if !slices.Contains(from, item) {
			absent = append(absent, item)
		}
	}
	return absent
}
