// Package simulate reports whether claims fit into a cluster, where, and if not, what stands in the way.
//
// The rule of this package: the scheduler's own allocator decides. An obstacle is named only if the allocator was run
// without it and then found a place.
//
// The way of a question: input (files as written), model (valid, with defaults), Cluster (what the allocator sees), one
// trial after the other, each with a [Verdict], and of that an [Answer] with what the driver would say.
package simulate
