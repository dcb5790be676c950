// Package cnichain turns a NetworkTopology, a DAG of CNI plugins, and a claim into a [Plan].
//
// The rule of this package: it is pure. [Compile] and [Validate] report every problem at once, and nothing here runs a
// plugin or looks at the machine. No Go code here knows any particular plugin: what a plugin accepts, makes and gets
// wrong is data, in [Schemas].
//
// What a claim may ask for is decided in cnichain/claimspec. Plans are run by cnichain/executor, on the machine that
// cnichain/host describes.
//
// The way of a topology, with the file of each part:
//
//	validate*.go            is it right, without devices and plugins
//	compile.go              a plan for one claim: devices, plugins and names are chosen
//	addressrange.go         the addresses of steps, from blocks of the node
//	validate_parameter.go   what a claim asks for, checked against what steps allow
//	plan.go                 the plan, which is JSON in the journal
//	schemas.go              contracts of plugins, built in and of the cluster
//	podnetworks.go          plugins for which pods select a network by annotation
package cnichain
