package clusterwide

import (
	"bytes"
	"context"
	_ "embed" // the page
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

//go:embed page.html
var pageHTML string

// page is the content of the page for the cluster.
type page struct {
	Time     string
	Nodes    []pageNode
	Problems []pageProblem
	Unasked  int
}

// pageNode is a row on the page: a node with the number of its devices in each state.
type pageNode struct {
	Name, Failure                string
	Free, InUse, Shared, Blocked int
	Held                         int // quarantined, gone, or otherwise not usable
	Wrong, Risky                 int
	Devices                      []nodeclient.Device
}

// pageProblem is a finding on a node, or a device that no claim can use.
type pageProblem struct {
	Node  string
	Wrong bool
	// Where is the location as in doctor: a path, a sandbox, or the claims that hold a device with their pods.
	What, Where, Why, Fix string
}

// nodeReport is the data of a node on the page.
type nodeReport struct {
	devices  []nodeclient.Device
	findings []doctor.Finding
}

// Report returns one page for the cluster. It shows problems, and for each node its free devices and the users of the
// other devices. Unreachable nodes are listed as problems. now is the time shown on the page; the nodes' answers may be
// up to a few minutes apart.
func Report(ctx context.Context, cluster *remote.Cluster, now time.Time) ([]byte, error) {
	answers, err := remote.Each(ctx, cluster, func(ctx context.Context, node string) (nodeReport, error) {
		var report nodeReport
		err := cluster.Decode(ctx, node, &report.devices, "devices", "--output=json")
		if err == nil {
			report.findings, err = findings(ctx, cluster, node)
		}
		return report, err
	})
	if err != nil {
		return nil, err
	}
	return write(answers, now)
}

// write creates the page from the answers of nodes. Package html/template escapes the answers.
func write(answers []remote.Of[nodeReport], now time.Time) ([]byte, error) {
	parsed, err := template.New("page").Funcs(template.FuncMap{"join": strings.Join, "class": class}).Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, build(answers, now))
	return out.Bytes(), err
}

func build(answers []remote.Of[nodeReport], now time.Time) page {
	p := page{Time: now.UTC().Format("2006-01-02 15:04:05 UTC")}
	for i := range answers {
		node := pageNode{Name: answers[i].Node, Devices: answers[i].Answer.devices}
		if err := answers[i].Err; err != nil {
			node.Failure = err.Error()
			p.Unasked++
			p.Problems = append(p.Problems, pageProblem{Node: node.Name, Wrong: true, What: "node unreachable",
				Why: err.Error()})
		}
		for j := range node.Devices {
			node.count(&node.Devices[j])
		}
		for _, f := range answers[i].Answer.findings {
			if f.Level != doctor.Fail && f.Level != doctor.Warn {
				continue
			}
			if f.Level == doctor.Fail {
				node.Wrong++
			} else {
				node.Risky++
			}
			p.Problems = append(p.Problems, pageProblem{Node: node.Name, Wrong: f.Level == doctor.Fail, What: f.What,
				Where: f.Where, Why: f.Why, Fix: f.Do})
		}
		p.Nodes = append(p.Nodes, node)
	}
	slices.SortStableFunc(p.Problems, func(a, b pageProblem) int { // problems that keep pods waiting come first
		switch {
		case a.Wrong == b.Wrong:
			return 0
		case a.Wrong:
			return -1
		default:
			return 1
		}
	})
	return p
}

// count counts a device. A shared device that is in use may have room left, according to its counters.
func (n *pageNode) count(device *nodeclient.Device) {
	switch device.State {
	case nodeclient.Free:
		n.Free++
	case nodeclient.InUse:
		n.InUse++
		if device.Use == "shared" {
			n.Shared++
		}
	case nodeclient.Blocked:
		n.Blocked++
	default:
		n.Held++
	}
}

// class returns the style sheet class for a device's state.
func class(state string) string {
	switch state {
	case nodeclient.Free:
		return "good"
	case nodeclient.InUse:
		return "use"
	case nodeclient.Blocked:
		return "warn"
	default:
		return "bad"
	}
}

// count is a number at the top of the page.
type count struct {
	Number int
	What   string
	Bad    bool
}

// Counts returns the numbers at the top of the page. It omits states that no device has.
func (p page) Counts() []count {
	var devices, free, used, blocked, held int
	for i := range p.Nodes {
		n := &p.Nodes[i]
		devices, free, used = devices+len(n.Devices), free+n.Free, used+n.InUse
		blocked, held = blocked+n.Blocked, held+n.Held
	}
	counts := []count{{len(p.Problems), plural(len(p.Problems), "problem"), len(p.Problems) > 0},
		{len(p.Nodes), plural(len(p.Nodes), "node"), false}}
	if p.Unasked > 0 {
		counts = append(counts, count{p.Unasked, "unreachable", true})
	}
	counts = append(counts, count{devices, plural(devices, "device"), false}, count{free, "free", false},
		count{used, "in use", false})
	if blocked > 0 {
		counts = append(counts, count{blocked, "blocked", false})
	}
	if held > 0 {
		counts = append(counts, count{held, "unavailable", true})
	}
	return counts
}

// Summary returns the line above the devices of a node.
func (n pageNode) Summary() string {
	return fmt.Sprintf("%d %s, %d free", len(n.Devices), plural(len(n.Devices), "device"), n.Free)
}

// plural returns a noun in singular or plural form, to match a number.
func plural(number int, noun string) string {
	if number == 1 {
		return noun
	}
	return noun + "s"
}

// Title returns the title of the page, for tabs and bookmarks.
func (p page) Title() string {
	free, devices := 0, 0
	for i := range p.Nodes {
		free, devices = free+p.Nodes[i].Free, devices+len(p.Nodes[i].Devices)
	}
	return fmt.Sprintf("%d %s, %d of %d devices free, %d %s", len(p.Nodes), plural(len(p.Nodes), "node"), free, devices,
		len(p.Problems), plural(len(p.Problems), "problem"))
}
