// Package slices turns a policy decision into the ResourceSlices for a node: names, pools, attributes, capacities and
// the shared counters that prevent conflicting entries of a device from being allocated at the same time.
//
// Invariant: the result, including the order of all its parts, depends only on the arguments of Build,
// and the API server always accepts it. Entries that cannot be published are left out and reported.
//
// Import the package as draslices, since the standard library has a package with the same name.
//
// Files, in the order in which a decision is processed:
//
//	build.go      pools, one for each conflict domain, and their slices
//	entry.go      the entries of a device, with attributes and capacities
//	held.go       entries that claims hold, whatever the current policies define
//	counters.go   exclusions between entries, with counters
//	groups.go     exclusions between entries, with compatibility groups
//	functions.go  virtual functions and their local counters
//	bandwidth.go  the bandwidth that virtual functions share
//	server.go     omitting parts for which the API server lacks a feature
package slices
