package view

import (
	"fmt"
	"slices"
	"strings"
)

// Differences says, in one sentence each, what is not as it was. Links are the same if their name is, or else their
// index. The address of a bridge is not compared: it has that of one of its ports unless it was given one. Carrier is
// not compared: it changes with the cable. A new alternative name is no difference, as udev adds some by itself.
func Differences(before, after View) []string {
	differences := []string{}
	seen := map[int]bool{} // by index, the links of after that were there before
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
			differences = append(differences,
				fmt.Sprintf("link %s (%s) was not there before", current.Name, current.Kind))
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
	differs("the master", orNone(previous.Master), orNone(current.Master))
	if lost := missing(previous.AltNames, current.AltNames); len(lost) > 0 {
		differences = append(differences, fmt.Sprintf("link %s has lost the alternative names %s", previous.Name,
			strings.Join(lost, ", ")))
	}
	if lost := missing(previous.Addresses, current.Addresses); len(lost) > 0 {
		differences = append(differences, fmt.Sprintf("link %s has lost the addresses %s", previous.Name,
			strings.Join(lost, ", ")))
	}
	if more := missing(current.Addresses, previous.Addresses); len(more) > 0 {
		differences = append(differences, fmt.Sprintf("link %s has the new addresses %s", previous.Name,
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
func missing[T comparable](list, rest []T) []T {
	var absent []T
	for _, item := range list {
		if !slices.Contains(rest, item) {
			absent = append(absent, item)
		}
	}
	return absent
}
