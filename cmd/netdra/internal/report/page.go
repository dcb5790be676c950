package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // embeds the parts of the page
	"encoding/base64"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// page is the content of a report. Details is nil if the report covers every node in a cluster.
type page struct {
	Time     string
	Nodes    []node
	Problems []problem
	Details  *details
}

// node contains the number of a node's devices in each state, and the number of its findings at each level.
type node struct {
	Name, Failure                string
	Free, InUse, Shared, Blocked int
	Held                         int // quarantined, gone, or unusable for another reason
	Wrong, Risky                 int
	Devices                      []nodeclient.Device
}

// problem is a finding on a node.
type problem struct {
	Node string
	doctor.Finding
}

func timeText(now time.Time) string { return now.UTC().Format("2006-01-02 15:04:05 UTC") }

// add adds a node and the faults and risks among its findings. Faults come first on the page.
func (p *page) add(n node, findings []doctor.Finding) {
	for i := range n.Devices {
		n.count(&n.Devices[i])
	}
	for _, f := range findings {
		switch f.Level {
		case doctor.Fail:
			n.Wrong++
		case doctor.Warn:
			n.Risky++
		default:
			continue
		}
		p.Problems = append(p.Problems, problem{n.Name, f})
	}
	p.Nodes = append(p.Nodes, n)
	slices.SortStableFunc(p.Problems, func(a, b problem) int {
		return strings.Compare(string(a.Level), string(b.Level)) // "fail" precedes "warn"
	})
}

// count adds a device to the counts of its node. A shared device in use may have free capacity according to its
// counters.
func (n *node) count(device *nodeclient.Device) {
	switch device.State {
	case nodeclient.Free:
		n.Free++
	case nodeclient.InUse:
		n.InUse++
		if device.Use == nodeclient.Use(false) {
			n.Shared++
		}
	case nodeclient.Blocked:
		n.Blocked++
	default:
		n.Held++
	}
}

func class(state string) string {
	switch state {
	case nodeclient.Free, offered:
		return "good"
	case nodeclient.InUse:
		return "use"
	case nodeclient.Blocked:
		return "warn"
	case hidden:
		return "quiet"
	default:
		return "bad"
	}
}

// count is a number shown at the top of the page.
type count struct {
	Number int
	What   string
	Bad    bool
}

// Counts returns the numbers shown at the top of the page. It omits states without devices.
func (p page) Counts() []count {
	var devices, free, used, blocked, held, unreachable int
	for i := range p.Nodes {
		n := &p.Nodes[i]
		devices, free, used = devices+len(n.Devices), free+n.Free, used+n.InUse
		blocked, held = blocked+n.Blocked, held+n.Held
		if n.Failure != "" {
			unreachable++
		}
	}
	counts := []count{{len(p.Problems), plural(len(p.Problems), "problem"), len(p.Problems) > 0}}
	if p.Details == nil {
		counts = append(counts, count{len(p.Nodes), plural(len(p.Nodes), "node"), false})
	}
	if unreachable > 0 {
		counts = append(counts, count{unreachable, "unreachable", true})
	}
	if p.Details != nil && !p.Details.Live {
		return append(counts, p.Details.counts()...)
	}
	counts = append(counts, count{devices, plural(devices, "device"), false}, count{free, "free", false},
		count{used, "in use", false})
	if blocked > 0 {
		counts = append(counts, count{blocked, "blocked", false})
	}
	if held > 0 {
		counts = append(counts, count{held, "unavailable", true})
	}
	if p.Details != nil {
		counts = append(counts, p.Details.counts()...)
	}
	return counts
}

// Summary returns the line shown above a node's devices.
func (n node) Summary() string {
	return fmt.Sprintf("%d %s, %d free", len(n.Devices), plural(len(n.Devices), "device"), n.Free)
}

func plural(number int, noun string) string {
	if number == 1 {
		return noun
	}
	return noun + "s"
}

// Title returns the title of the page for tabs and bookmarks.
func (p page) Title() string {
	if p.Details != nil {
		count := ""
		if len(p.Problems) > 0 {
			count = fmt.Sprintf("(%d) ", len(p.Problems))
		}
		return count + p.Nodes[0].Name + ": network devices"
	}
	free, devices := 0, 0
	for i := range p.Nodes {
		free, devices = free+p.Nodes[i].Free, devices+len(p.Nodes[i].Devices)
	}
	return fmt.Sprintf("%d %s, %d of %d devices free, %d %s", len(p.Nodes), plural(len(p.Nodes), "node"), free, devices,
		len(p.Problems), plural(len(p.Problems), "problem"))
}

// Policy returns the page's Content-Security-Policy. It blocks all requests and scripts, and allows only the page's own
// style sheet, identified by its hash. Therefore, even incorrectly escaped text cannot run as a script.
func (page) Policy() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'"
}

// Style returns the style sheet.
func (page) Style() template.HTML {
	return template.HTML("<style>" + pageCSS + "</style>") //nolint:gosec // our own text
}

// write renders the page. Package html/template escapes all text, since text may come from plugins, users and other
// nodes.
func (p page) write() ([]byte, error) {
	parsed, err := template.New("page").Funcs(template.FuncMap{"join": strings.Join, "class": class}).Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, p)
	return out.Bytes(), err
}
