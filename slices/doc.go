// Package slices turns a policy decision into the ResourceSlices of a node: names, pools, attributes, capacities and
// the shared counters that keep conflicting entries of one device from being allocated at once.
//
// The rule of this package: the result depends on the arguments of Build alone, down to the order of everything in it,
// and is always accepted by the API server. What cannot be published is left out and reported.
//
// The package shares its name with one of the standard library: import it as draslices.
//
// The way of a decision:
//
//	build.go      one pool for each conflict domain, in slices
//	entry.go      the entries of a device, with attributes and capacities
//	held.go       entries that claims hold, whatever policies say now
//	counters.go   keeps entries apart by counters
//	groups.go     keeps them apart by compatibility groups
//	functions.go  the same for virtual functions, with counters of their own
//	bandwidth.go  the bandwidth that virtual functions divide
//	server.go     what is left out where the API server lacks a feature
package slices
