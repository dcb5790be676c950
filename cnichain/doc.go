// Package cnichain turns a NetworkTopology, a DAG of CNI plugins, into a plan for one claim, and runs plans against a
// pod's network namespace as a transaction: either every step is there and verified, or nothing is left.
//
// The rule of this package: [Compile] and [Validate] are pure and report every problem at once; [Executor] is the only
// code that runs CNI plugins, and it writes to the journal before and after every side effect, so that a crash at any
// instruction can be undone from what the journal says. No Go code here knows any particular plugin: what a plugin
// accepts, makes and gets wrong is data, in [Schemas].
//
// # What the executor promises
//
//   - Add returns nil when every step's interface was seen in the pod, or its device has the driver that the step wants, and
//     leaves nothing otherwise.
//   - Del may be called at any time, any number of times, by any process that has the journal. What a plugin says is not
//     believed: interfaces are found by index, an exclusive device is proven to be on the host as [Host.Snapshot] saw it.
//   - Nothing is touched that a step did not make: not an interface that has taken the name of one, not a device that has a
//     newer owner.
//   - Nothing waits for ever: a step that can't be undone becomes a [Leftover], and its device is held back until
//     [Executor.Retry] succeeds.
//
// # How to use it
//
// Load a journal ([github.com/dra-networking/dra-network-driver/cnichain/journal] has one) into a new executor, wait for
// plugins of an earlier process with [PluginExec.AwaitEarlier], and give everything that is not ready to Del. Then, for each
// claim: [Executor.Probe] and Compile; for each pod: [NewAttachment], Add, and in the end Del. Calls for one pod must not
// overlap; calls for different pods may. It works without Kubernetes: see cmd/netdra.
package cnichain
