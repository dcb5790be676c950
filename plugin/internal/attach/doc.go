// Package attach manages the attachments of pod sandboxes and the gates that hold back containers until these
// attachments are complete.
//
// Invariant: every change to an attachment is recorded in the journal before and after it happens, only
// one attempt to attach or detach runs per sandbox, and no lock is held during I/O. Nothing waits for the API server.
// Results are reported to one [Observer].
//
// The life cycle of a sandbox: RunPodSandbox calls [Sandboxes.Attach], which registers the sandbox and runs the chains
// of its claims. When all steps are done, the gates of the claims open and the kubelet may start containers. Stopping
// the sandbox, or unpreparing a claim, closes the gates and rolls back the steps. Files:
//
//	attach.go      runs chains, with retries in the background
//	detach.go      rolls them back, for a whole sandbox or one claim
//	gate.go        the files that containers need to start
//	sandboxes.go   the register of sandboxes, and the rules for new ones
//	sandbox.go     one sandbox, with its phases in phase.go
//	confirm.go     compares the records with the runtime and the kernel
//	recover.go     adopts the state of an earlier driver process
//	sweep.go       detects changes without events
//	unrecorded.go  running pods whose journal was lost
//
// Locks are taken in this order: the slot of a sandbox, the lock of a claim's gate, the lock of the register, the lock
// of the sandbox. The slot and the gate's lock are held during I/O, so waiting for them may take seconds. The other two
// are mutexes that only guard data in memory.
package attach
