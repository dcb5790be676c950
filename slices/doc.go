// Package slices turns a policy decision into the ResourceSlices of a node: names, pools, attributes, capacities and
// the shared counters that keep conflicting entries of one device from being allocated at once.
//
// The rule of this package: the result depends on the arguments of Build alone, down to the order of everything in it,
// and is always accepted by the API server. What cannot be published is left out and reported.
//
// The package shares its name with one of the standard library: import it as draslices.
package slices
