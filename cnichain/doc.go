// Package cnichain compiles a NetworkTopology (a DAG of CNI plugins) and a claim into a [Plan].
//
// Invariant: it is pure. [Compile] and [Validate] report all problems, and none of the code runs a
// plugin or inspects the machine. The Go code does not depend on any particular plugin: each plugin's parameters,
// results and quirks are described as data in [Schemas].
//
// Package cnichain/claimspec defines which claims are valid. Package cnichain/executor runs plans on a machine through
// the interfaces in package cnichain/host.
//
// Files, in processing order:
//
//	validate*.go            validation that needs neither devices nor plugins
//	compile.go              the plan for one claim, including the choice of devices, plugins and names
//	addressrange.go         addresses for steps, from the node's blocks
//	validate_parameter.go   validation of a plugin's parameters against its schema
//	plan.go                 the plan, which is stored as JSON in the journal
//	schemas.go              plugin contracts, built in or from the cluster
//	podnetworks.go          plugins that require pods to select a network by annotation
package cnichain
