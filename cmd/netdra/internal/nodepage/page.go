package nodepage

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/picture"
	"github.com/dra-networking/dra-network-driver/policy"
)

// Page is the content of the report, in display order. All texts are plain text, except in fields of type
// template.HTML.
type Page struct {
	Node, Time, Source string
	Versions           string
	Asked              bool
	Counts             []Count
	Problems           []Problem
	Machine            []Area
	Rows               []Row
	Counters           []Counter
	Claims             []ClaimView
	Policies           []PolicyView
	Unread             []string
}

// Count is a number at the top of the page.
type Count struct {
	Number int
	What   string
	// Bad is true if the number must be highlighted.
	Bad bool
}

// State is the availability of a device.
type State string

// Device states.
const (
	Offered  State = "offered" // holders are unknown
	Free     State = "free"
	InUse    State = "in use"
	Full     State = "full"        // in use, without remaining capacity
	Blocked  State = "blocked"     // its counters are consumed by other entries
	HeldBack State = "unavailable" // it has a taint, or no policy exposes it any longer
	Unusable State = "unusable"    // no class matches it: none of its CNI plugins works on the node
	Hidden   State = "hidden"
)

// states returns all states in display order.
func states() []State {
	return []State{Offered, Free, InUse, Full, Blocked, HeldBack, Unusable, Hidden}
}

// Mark returns a symbol for the state, so that color is not the only indicator.
func (s State) Mark() string {
	return map[State]string{Offered: "○", Free: "○", InUse: "●", Full: "●", Blocked: "◐", HeldBack: "!", Unusable: "!",
		Hidden: "–"}[s]
}

// Class returns the CSS class.
func (s State) Class() string {
	return map[State]string{Offered: "f", Free: "f", InUse: "u", Full: "u", Blocked: "b", HeldBack: "x", Unusable: "x",
		Hidden: "h"}[s]
}

// Problem is a problem that an administrator can fix.
type Problem struct {
	// Urgent is true if the problem blocks a pod or makes a device unavailable.
	Urgent            bool
	Where, What, ToDo string
}

// Area is a part of the machine: a NUMA node, or all links without hardware.
type Area struct {
	Title string
	Roots []Root
}

// Root is a PCIe root complex and its devices.
type Root struct {
	Title string
	Boxes []Box
}

// Box is a box in the drawing of the machine. It shows one device, or several equivalent ones.
type Box struct {
	// ID identifies the row in the device table that has the details.
	ID, Label, Type string
	State           State
	Lines           []string
	// Functions are the virtual functions of a physical function, by index.
	Functions []Cell
	Summary   string
}

// Cell is one virtual function.
type Cell struct {
	Name  string
	State State
}

// Row is a row in the device table: a device, or several that differ only in their names. Members are sorted, and the
// first one determines the row's position. Held and Why cover all members.
type Row struct {
	ID, Label, Type string
	Members         []Member
	State           State
	What            []string
	Offers          []Offer
	Held            []Holding
	Why             []string
	Outcomes        []Outcome
}

// Holding is a claim and the entry that it holds. Entry is empty if the device has only one entry.
type Holding struct{ Entry, Claim string }

// Member is a device in a row, with the data that is specific to it. Also lists other names of its interface, and RDMA
// lists its RDMA devices.
type Member struct{ Name, Address, Also, RDMA string }

// Offer is an entry for a device in the node's ResourceSlices.
type Offer struct {
	// Name is the name of the entry. In a row with several devices, it is the suffix after each device name.
	Name   string
	Use    string
	Policy string
	// Plugins are the plugins from the policy that work on the node.
	Plugins  []string
	State    State
	Capacity []Amount
	Consumes string
	// BlockedBy lists the entries in use that consume counters that this entry needs.
	BlockedBy []string
}

// Amount is a capacity that claims share, with the remaining, total and default amounts.
type Amount struct{ Name, Left, Total, Default string }

// Outcome is the result of one policy for a device.
type Outcome struct{ Policy, Outcome, Why string }

// Counter is a shared counter in a pool.
type Counter struct {
	Pool, Name, Left, Total string
	// Percent is the remaining percentage.
	Percent int
}

// ClaimView is a claim and its chains.
type ClaimView struct {
	ID, Name, State string
	Bad, Open       bool
	Devices         []ClaimDevice
	Runs            []Run
}

// ClaimDevice is a device that a claim holds.
type ClaimDevice struct{ Request, Name, Pool, Consumed string }

// Run is a claim's chain in one pod sandbox, or the planned chain.
type Run struct {
	Pod, Sandbox, State, Failure string
	Took                         string
	Graph                        template.HTML
	Steps                        []Step
	Calls                        []Call
	Earlier                      int // number of omitted calls
}

// ArrowHead returns the SVG marker for the arrows of all graphs.
func (Page) ArrowHead() template.HTML {
	return template.HTML(picture.ArrowHead()) //nolint:gosec // ours
}

// Step is a step in a chain.
type Step struct {
	Name, Plugin, Device, State, Took, Result string
	// After contains the indexes of the steps that this step depends on.
	After []int
}

// Class returns the CSS class for the step's state.
func (s Step) Class() string { return stepClass(s.State) }

// Names returns the names of the steps with the given indexes.
func (r Run) Names(steps []int) string {
	names := make([]string, 0, len(steps))
	for _, i := range steps {
		names = append(names, r.Steps[i].Name)
	}
	return strings.Join(names, ", ")
}

// Call is one call of a CNI plugin.
type Call struct {
	Time, Command, Step, Took, Result string
	Failed                            bool
	Output                            string
}

// PolicyView summarizes a policy's outcomes on this node.
type PolicyView struct {
	Name     string
	Outcomes string
	Problem  bool
}

// Build returns the page for a node. It is a pure function.
func Build(node Node) Page {
	node.Sandboxes = addLastAttempts(&node)
	used := useOf(&node)
	rows := rowsOf(&node, used)
	page := Page{
		Node: node.Name, Time: node.Time.UTC().Format("2006-01-02 15:04:05 UTC"), Source: node.Source,
		Versions: node.Versions, Asked: node.Asked,
		Problems: problemsOf(&node), Machine: machineOf(&node, rows), Rows: rows, Counters: used.countersOf(),
		Claims: claimsOf(&node), Policies: policiesOf(&node), Unread: node.Unread,
	}
	page.Counts = countsOf(&page)
	return page
}

func countsOf(page *Page) []Count {
	byState := map[State]int{}
	devices := 0
	for i := range page.Rows {
		devices += len(page.Rows[i].Members)
		byState[page.Rows[i].State] += len(page.Rows[i].Members)
	}
	counts := []Count{{Number: len(page.Problems), What: pluralize(len(page.Problems), "problem"),
		Bad: len(page.Problems) > 0}, {Number: devices, What: pluralize(devices, "device")}}
	for _, state := range states() {
		if byState[state] > 0 {
			counts = append(counts, Count{Number: byState[state], What: string(state),
				Bad: state == HeldBack || state == Unusable})
		}
	}
	if page.Asked {
		counts = append(counts, Count{Number: len(page.Claims), What: pluralize(len(page.Claims), "claim")})
	}
	return counts
}

// policiesOf returns a row for each policy with the number of devices per outcome, sorted by name.
func policiesOf(node *Node) []PolicyView {
	var names []string
	wrong := problemPolicies(node)
	counts := map[string]map[policy.Outcome]int{}
	for i := range node.Decision.Devices {
		for _, reason := range node.Decision.Devices[i].Reasons {
			if counts[reason.Policy] == nil {
				names, counts[reason.Policy] = append(names, reason.Policy), map[policy.Outcome]int{}
			}
			counts[reason.Policy][reason.Outcome]++
		}
	}
	slices.Sort(names)
	views := make([]PolicyView, 0, len(names))
	for _, name := range names {
		views = append(views, PolicyView{Name: name, Outcomes: tally(counts[name], outcomes()),
			Problem: slices.Contains(wrong, name)})
	}
	return views
}

// outcomes returns all outcomes of a policy in display order.
func outcomes() []policy.Outcome {
	return []policy.Outcome{policy.Exposes, policy.Excludes, policy.Failed, policy.Invalid, policy.Lost, policy.NoMatch,
		policy.OtherNodes}
}

// tally lists the nonzero counts in the given order.
func tally[K ~string](counts map[K]int, order []K) string {
	var parts []string
	for _, what := range order {
		if n := counts[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	return strings.Join(parts, ", ")
}

// pluralize returns the noun in singular or plural form, to match n.
func pluralize(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
