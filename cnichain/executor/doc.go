// Package executor runs plans against a pod's network namespace as a transaction: a chain is either fully attached and
// verified, or fully rolled back.
//
// The rule of this package: it is the only code that runs CNI plugins, and it writes to the journal before
// every side effect what it is about to do and what it has done, so that a crash at any instruction can be undone from
// what the journal says. It knows no plugin: a plan has what a plugin's schema says.
//
// # What the executor promises
//
//   - Add returns nil when every step's interface was seen in the pod, or its device has the driver that the step
//     wants. Otherwise it rolls back the completed steps.
//   - Del may be called at any time, any number of times, by any process that has the journal. It does not trust what a
//     plugin says: it finds interfaces by index, and proves that an exclusive device is on the host as
//     [host.Devices] saw it.
//   - The executor touches only what a step made: no interface that has taken the name of one, and no device that has a
//     newer owner.
//   - Nothing waits for ever: a step that cannot be undone becomes a [Leftover], and its device is held back until
//     [Executor.Retry] succeeds.
//
// # What the journal says when
//
// Each line is one commit; whatever lies between two commits may be done, half done or not begun after a crash.
//
//	Add   attachment Attaching, all steps Planned    then: the namespace is pinned, names are given
//	      step 1 Adding                              then: driver, ADD, look, RDMA devices
//	      step 1 Added, step 2 Adding                then: the same for step 2
//	      all steps Added, attachment Ready
//	Del   attachment Detaching, steps Deleting       then: DEL of the last step, look, device restored
//	      last step Deleted                          then: the same for the step before
//	      the record is deleted, in place of the first step's Deleted
//
// A chain that gives RDMA devices has one more commit before it is Ready, since their GIDs are waited for.
//
// # Where to look
//
// attachment.go has the records, executor.go Add, del.go and undo.go Del, leftover.go and retry.go what could not be
// undone, owners.go who may touch a device, errors.go what callers are told. exec.go and inprocess.go run plugins,
// call.go what is the same for every call. result.go, stdin.go, names.go and templatevars.go compute what plugins are
// given and what becomes of their answers. check.go has CHECK, STATUS and GC, which only people ask for. Package
// calllog writes and reads the log for people.
//
// # How to use it
//
// Load a journal ([github.com/dra-networking/dra-network-driver/cnichain/journal] has one) into a new executor, wait
// for plugins of an earlier process with [PluginExec.AwaitEarlier], and give everything that is not ready to Del. Then,
// for each claim: [Executor.Probe] and [cnichain.Compile]; for each pod: [NewAttachment], Add, and in the end Del.
// Calls for one pod must not overlap; calls for different pods may. It works without Kubernetes: see cmd/netdra.
package executor
