// Package simulate reports whether claims fit in a cluster and on which nodes. If they do not fit, it reports which
// claims or constraints are in the way.
//
// The scheduler's own allocator makes every decision. The package only reports something as an obstacle if the
// allocator succeeds without it.
//
// Data flows from model (validated objects with defaults) to Cluster (the allocator's view). Then the trials run in
// order. Each yields a [Verdict], and the driver's checks turn it into an [Answer].
package simulate
