// Package nodepage renders the HTML report of a node: its network devices and their hierarchy, the entries and their
// holders, problems, and the chain for every claim.
//
// facts + decision + state ─Build─► Page ─Write─► HTML
//
// The package performs no I/O except writing the page. The page is one self-contained file that loads nothing. All data
// from the machine or the cluster is escaped as text.
//
// Build computes, in this order: the last attempts for claims without a sandbox (attempts.go), holders and remaining
// amounts (use.go), and a row for each group of equivalent devices (devices.go). From the rows it builds the drawing of
// the machine (machine.go), followed by problems, claims and policies. page.html only iterates over the [Page] and
// computes nothing.
package nodepage
