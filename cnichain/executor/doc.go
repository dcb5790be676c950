// Package executor runs plans against a pod's network namespace as a transaction: a chain is either fully attached and
// verified, or fully rolled back.
//
// Invariant: it is the only code that runs CNI plugins. Before every side effect, it writes its
// intention and its previous results to the journal, so that after a crash at any point, the chain can be rolled back
// from the journal. It does not depend on specific plugins: a plan includes the relevant parts of each plugin's schema.
//
// # Guarantees
//
//   - Add returns nil only if, for every step, the interface was verified in the pod or the device is bound to the
//     requested driver. Otherwise it rolls back the completed steps.
//   - Del may be called at any time, any number of times, by any process that has access to the journal. It does not
//     trust a plugin's result: it finds interfaces by index, and verifies that an exclusive device is on the host in
//     the state that [host.Devices] recorded.
//   - The executor only touches what its own steps created: never an unrelated interface that now uses the same name,
//     or a device that has a newer owner.
//   - No call waits forever: a step that cannot be rolled back becomes a [Leftover], and its device is
//     quarantined until [Executor.Retry] succeeds.
//
// # Journal commits
//
// Each line is one commit. After a crash, the actions between two commits may be complete, incomplete or not started.
//
//	Add   attachment Attaching, all steps Planned    then: the namespace is pinned, names are assigned
//	      step 1 Adding                              then: driver, ADD, verification, RDMA devices
//	      step 1 Added, step 2 Adding                then: the same for step 2
//	      all steps Added, attachment Ready
//	Del   attachment Detaching, steps Deleting       then: DEL of the last step, verification, device restored
//	      last step Deleted                          then: the same for the step before
//	      the record is deleted, instead of the first step's Deleted
//
// A chain with RDMA devices has an additional commit before it becomes Ready, because it waits for the devices' GIDs.
//
// # Files
//
// attachment.go defines the records. executor.go implements Add; del.go and undo.go implement Del; leftover.go and
// retry.go handle steps that could not be rolled back; owners.go tracks device owners; and errors.go defines the errors
// returned to callers. exec.go and inprocess.go run plugins, and call.go contains the code common to all calls.
// result.go, stdin.go, names.go and templatevars.go compute the input for plugins and process their results. check.go
// implements CHECK and STATUS, which run only at a user's request. Package calllog writes and reads the call log shown
// to users.
//
// # Usage
//
// Load a journal ([github.com/dra-networking/dra-network-driver/cnichain/journal] implements one) into a new executor,
// use [PluginExec.AwaitEarlier] to wait for plugins started by an earlier process, and call Del for every attachment
// that is not ready. Then, for each claim, call [Executor.Probe] and [cnichain.Compile]; for each pod, call
// [NewAttachment], Add, and finally Del. Calls for one pod must not overlap; calls for different pods may. The package
// works without Kubernetes: see cmd/netdra.
package executor
