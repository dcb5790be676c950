// Package attach keeps what is attached to pod sandboxes, and the gates that hold their containers until it is.
//
// The rule of this package: what is attached is in the journal before and after it changes, one attempt to attach or
// detach at a time runs for a sandbox, and no lock is held over I/O. Nothing waits for the API server. What becomes of
// pods is told to one [Observer].
//
// The life of a sandbox: RunPodSandbox calls [Sandboxes.Attach], which registers it and runs the chains of its claims.
// When all steps are done, the gates of the claims open and kubelet may start containers. A stop of the sandbox, or an
// Unprepare of a claim, closes the gates and undoes the steps. Where each thing is:
//
//	attach.go      runs chains, with retries in the background
//	detach.go      undoes them, of a whole sandbox or of one claim
//	gate.go        the files without which no container starts
//	sandboxes.go   the register of sandboxes, and what may begin
//	sandbox.go     one of them, with its phases in phase.go
//	confirm.go     compares what is recorded with runtime and kernel
//	recover.go     takes over what an earlier driver left
//	sweep.go       finds what no event has told
//	unrecorded.go  pods that run although the journal was lost
//
// Locks are taken in this order: the slot of a sandbox, the lock of a claim's gate, the register's, the sandbox's own.
// The slot and the gate's lock are held over I/O, and calls that wait for them may take seconds. The two mutexes guard
// memory.
package attach
