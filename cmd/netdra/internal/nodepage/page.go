package nodepage

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/picture"
	"github.com/dra-networking/dra-network-driver/policy"
)

// Page is what there is to see, in the order in which it is shown. All texts are plain. The only fields with markup are
// those of type template.HTML.
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
	// Bad numbers stand out.
	Bad bool
}

// State is what may be done with a device. It is also the name of a class of the style sheet, but for its spaces.
type State string

// States of devices.
const (
	Offered  State = "offered" // and nobody was asked who holds it
	Free     State = "free"
	InUse    State = "in use"
	Full     State = "full"    // in use, and nothing is left for others
	Blocked  State = "blocked" // what it would take is taken by others
	HeldBack State = "held back"
	Unusable State = "unusable" // no class picks it: none of its CNI plugins can work on the node
	Hidden   State = "hidden"
)

// states are all of them, in the order in which they are told.
func states() []State {
	return []State{Offered, Free, InUse, Full, Blocked, HeldBack, Unusable, Hidden}
}

// Mark is a letter for the state, so that it is not told by colour alone.
func (s State) Mark() string {
	return map[State]string{Offered: "○", Free: "○", InUse: "●", Full: "●", Blocked: "◐", HeldBack: "!", Unusable: "!",
		Hidden: "–"}[s]
}

// Class is the name for style sheets.
func (s State) Class() string {
	return map[State]string{Offered: "f", Free: "f", InUse: "u", Full: "u", Blocked: "b", HeldBack: "x", Unusable: "x",
		Hidden: "h"}[s]
}

// Problem is something that an administrator can fix.
type Problem struct {
	// Urgent ones keep a pod waiting, or a device from everybody.
	Urgent            bool
	Where, What, ToDo string
}

// Area is a part of the machine: a NUMA node, or all links that are not hardware.
type Area struct {
	Title string
	Roots []Root
}

// Root is what stands below one PCIe root complex.
type Root struct {
	Title string
	Cards []Card
}

// Card is a device, or several that are alike, in the drawing of the machine.
type Card struct {
	// ID is that of the row of the table of devices that says more.
	ID, Label, Type string
	State           State
	Lines           []string
	// Functions are the virtual functions of a physical one, by index.
	Functions []Cell
	Summary   string
}

// Cell is one virtual function.
type Cell struct {
	Name  string
	State State
}

// Row is a device, or several that differ in their names only. Members are sorted as devices are, and the first one
// gives the row its name; Held and Why are of all of them.
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

// Holding is a claim that has an entry. The entry is left out where the row has no other.
type Holding struct{ Entry, Claim string }

// Member is one device of a row, with what only it is called. Also are other names of its interface, and RDMA those of
// its RDMA devices.
type Member struct{ Name, Address, Also, RDMA string }

// Offer is one entry of a device in the node's ResourceSlices.
type Offer struct {
	// Name is that of the entry; of several devices in a row it is what stands behind their names.
	Name   string
	Use    string
	Policy string
	// Plugins are those of the policy that can work on the node.
	Plugins  []string
	State    State
	Capacity []Amount
	Consumes string
	// BlockedBy are the entries in use that have what this one would take.
	BlockedBy []string
}

// Amount is what claims divide.
type Amount struct{ Name, Left, Total, Default string }

// Outcome is what came of one policy.
type Outcome struct{ Policy, Outcome, Why string }

// Counter is what the devices of a pool share.
type Counter struct {
	Pool, Name, Left, Total string
	// Percent is how much is left.
	Percent int
}

// ClaimView is a claim with what was run for it.
type ClaimView struct {
	ID, Name, State string
	Bad, Open       bool
	Devices         []ClaimDevice
	Runs            []Run
}

// ClaimDevice is a device of a claim.
type ClaimDevice struct{ Request, Name, Pool, Consumed string }

// Run is a claim's chain in one pod sandbox, or as it will be.
type Run struct {
	Pod, Sandbox, State, Failure string
	Took                         string
	Graph                        template.HTML
	Steps                        []Step
	Calls                        []Call
	Earlier                      int // calls that are left out
}

// ArrowHead is what the arrows of all graphs have at their ends.
func (Page) ArrowHead() template.HTML {
	return template.HTML(picture.ArrowHead()) //nolint:gosec // ours
}

// Step is a step of a chain.
type Step struct {
	Name, Plugin, Device, State, Took, Result string
	// After are the indexes of the steps that it is run after.
	After []int
}

// Class is the name of its state for style sheets.
func (s Step) Class() string { return stepClass(s.State) }

// Names are those of steps of the run.
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

// PolicyView describes what a policy does on this node.
type PolicyView struct {
	Name     string
	Outcomes string
	Problem  bool
}

// Build is the page of a node. It is pure: the same node gives the same page.
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

// policiesOf is a row for each policy, with how many devices it decided about and how, in the order of their names.
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

// outcomes are what may come of a policy, in the order in which they are told.
func outcomes() []policy.Outcome {
	return []policy.Outcome{policy.Exposes, policy.Excludes, policy.Failed, policy.Invalid, policy.Lost, policy.NoMatch,
		policy.OtherNodes}
}

// tally describes how often there is what.
func tally[K ~string](counts map[K]int, order []K) string {
	var parts []string
	for _, what := range order {
		if n := counts[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	return strings.Join(parts, ", ")
}

// pluralize is a noun for so many.
func pluralize(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
