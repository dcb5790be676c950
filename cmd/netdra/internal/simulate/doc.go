// Package simulate reports whether claims fit into a cluster and on which nodes. If they do not fit, it reports which
// claims or constraints prevent this.
//
// The scheduler's own allocator makes every decision. The package only names an obstacle if the allocator succeeds
// without that obstacle.
//
// Data flows from model (validated objects with defaults) to Cluster (the allocator's view). The trials then run in
// order. Each yields a [Verdict], which the driver's own checks turn into an [Answer].
package simulate
