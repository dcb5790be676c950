// Package cnichain turns a NetworkTopology, a DAG of CNI plugins, and a claim into a [Plan].
//
// The rule of this package: it is pure. [Compile] and [Validate] report every problem at once, and nothing here runs a
// plugin or looks at the machine. No Go code here knows any particular plugin: what a plugin accepts, makes and gets
// wrong is data, in [Schemas].
//
// What a claim may ask for is decided in cnichain/claimspec. Plans are run by cnichain/executor, on the machine that
// cnichain/host describes.
package cnichain
