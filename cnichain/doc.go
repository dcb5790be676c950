// Package cnichain compiles a NetworkTopology, a DAG of CNI plugins, and a claim into a [Plan].
//
// The rule of this package: it is pure. [Compile] and [Validate] report all problems, and none of the code runs a
// plugin or inspects the machine. The Go code does not depend on any particular plugin: the parameters, results and
// faults of plugins are data in [Schemas].
//
// Package cnichain/claimspec defines which claims are valid. Package cnichain/executor runs plans on a machine through
// the interfaces in package cnichain/host.
//
// Files, in the order in which a topology is processed:
//
//	validate*.go            validation, without devices and plugins
//	compile.go              the plan for one claim: devices, plugins and names are chosen
//	addressrange.go         step addresses, taken from the node's blocks
//	validate_parameter.go   the parameters of a plugin's configuration, checked against its schema
//	plan.go                 the plan, which is JSON in the journal
//	schemas.go              plugin contracts, built in or from the cluster
//	podnetworks.go          plugins for which pods select a network by annotation
package cnichain
