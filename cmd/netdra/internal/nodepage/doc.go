// Package nodepage makes one page of a node: its network devices as they are built into each other, what is offered
// of them and who holds it, what is wrong, and the chain of every claim.
//
//	facts + decision + state ─Build─► Page ─Write─► HTML
//
// The rule of this package: no I/O but writing the page. The page is one file that fetches nothing; everything that a
// machine or a cluster says is text in it, never markup.
package nodepage
