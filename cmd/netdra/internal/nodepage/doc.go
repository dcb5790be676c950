// Package nodepage makes one page of a node: its network devices as they are built into each other, what is offered
// of them and who holds it, what is wrong, and the chain of every claim.
//
//	facts + decision + state ─Build─► Page ─Write─► HTML
//
// The rule of this package: no I/O but writing the page. The page is one file that fetches nothing; everything that a
// machine or a cluster says is text in it, never markup.
//
// Build computes, in this order: the last attempts of claims without a sandbox (attempts.go), who holds what and what
// is left (use.go), a row for each group of devices that are alike (devices.go), and of those the drawing of the
// machine (machine.go), problems, claims and policies. page.html walks over the [Page], and computes nothing.
package nodepage
