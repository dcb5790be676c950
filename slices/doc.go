// Package slices turns a policy decision into the ResourceSlices for a node: names, pools, attributes, capacities and
// the shared counters that prevent conflicting entries of a device from being allocated at the same time.
//
// The rule of this package: the result, including the order of all its parts, only depends on the arguments of Build,
// and the API server always accepts it. Entries that cannot be published are left out and reported.
//
// Import the package as draslices, since the standard library has a package with the same name.
//
// Files, in the order in which a decision is processed:
//
//	build.go      one pool for each conflict domain, in slices
//	entry.go      the entries of a device, with attributes and capacities
//	held.go       entries that claims hold, whatever the current policies define
//	counters.go   separates entries by counters
//	groups.go     separates entries by compatibility groups
//	functions.go  separates virtual functions, which have their own counters
//	bandwidth.go  the bandwidth that virtual functions share
//	server.go     parts that are left out if the API server lacks a feature
package slices
