// Package simulate reports whether claims fit into a cluster, where, and if not, what stands in the way.
//
// The rule of this package: the scheduler's own allocator decides. An obstacle is named only if the allocator was run
// without it and then found a place.
package simulate
