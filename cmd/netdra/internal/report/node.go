package report

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// Options are the flags of "netdra report".
type Options struct {
	offers.Inputs
	LogDir, Output string
	// Root is the directory with the node's file system, which doctor checks.
	Root string
}

// Run writes the page for a node.
func (f *Options) Run(ctx context.Context, deps osdeps.Deps, streams printer.Streams) error {
	if f.Output == "" && printer.IsTerminal(streams.Out) {
		return printer.ErrTerminal()
	}
	s, err := f.Read(ctx, deps, streams, nodeapi.PathLeftovers)
	if err != nil {
		return err
	}
	d := &details{Versions: nodeclient.VersionsOf(s.Answers).String(),
		Source: "simulated: the devices that the driver would offer with the policies in the given files"}
	var findings []doctor.Finding
	if s.Answers != nil {
		options := doctor.Options{Root: f.Root, Socket: f.Socket}
		if input, err := options.Gather(ctx); err != nil {
			d.Unread = append(d.Unread, err.Error())
		} else {
			findings = doctor.Examine(input)
		}
		d.Live, d.Source = true, "data of the node's driver"
		d.addClaims(s.Answers, func(namespace, name string) ([]calllog.Call, error) {
			return calllog.Read(f.LogDir, namespace, name)
		})
	}
	now := time.Now()
	if deps.Clock != nil {
		now = deps.Clock.Now()
	}
	data, err := nodePage(s, d, findings, now).write()
	if err != nil {
		return err
	}
	return printer.Save(streams, f.Output, data)
}

// details contains the parts that appear only on the page for a single node.
type details struct {
	Source, Versions string
	// Live is true if the node's driver was queried. Otherwise, the holders of devices are unknown, and Claims is
	// empty.
	Live   bool
	Areas  []area
	Claims []claim
	// Policies is a table including its heading; nil if there are no rows.
	Policies [][]string
	// Unread describes data that is missing from the page because it could not be read.
	Unread []string
	// devices is the number of devices on the machine, and hidden is how many of them are not offered.
	devices, hidden int
}

// nodePage returns the page for a node. d contains the data that is not in the snapshot.
func nodePage(s *offers.Snapshot, d *details, findings []doctor.Finding, now time.Time) page {
	d.Areas = areasOf(s)
	shown := sets.New[discovery.IfName]()
	for i := range s.Result.Entries {
		shown.Insert(s.Result.Entries[i].Device.Name)
	}
	d.devices, d.hidden = len(s.Decision.Devices), len(s.Decision.Devices)-len(shown)
	if effects := s.Effects(); len(effects) > 0 {
		d.Policies = printer.Rows(printer.FormTable, effects, offers.EffectColumns())
	}
	p := page{Time: timeText(now), Details: d}
	p.add(node{Name: s.Node.Name, Devices: s.Devices}, append(findings, problemsOf(s, findings)...))
	return p
}

// problemsOf returns problems with discovery, policies and publication that doctor has not already reported.
func problemsOf(s *offers.Snapshot, known []doctor.Finding) []doctor.Finding {
	var found []doctor.Finding
	add := func(text, message string) {
		if !slices.ContainsFunc(known, func(f doctor.Finding) bool { return strings.Contains(f.What+f.Why, message) }) {
			found = append(found, doctor.Finding{Level: doctor.Warn, What: text})
		}
	}
	for _, p := range slices.Concat(s.Decision.Problems, s.Result.Problems) {
		add(p.String(), p.Message)
	}
	for _, p := range s.Facts.Problems {
		add(p.String(), p.Message)
	}
	for i := range s.Facts.Orphans {
		text := fmt.Sprintf("virtual function %s has no name and is not offered: the interface of its physical "+
			"function is not on the node, or does not list it", s.Facts.Orphans[i].PCIAddress)
		add(text, text)
	}
	return found
}

// counts returns the numbers shown only at the top of the page for a single node.
func (d *details) counts() []count {
	if d.Live {
		return []count{{d.hidden, hidden, false}, {len(d.Claims), plural(len(d.Claims), "claim"), false}}
	}
	return []count{{d.devices, plural(d.devices, "device"), false}, {d.devices - d.hidden, offered, false},
		{d.hidden, hidden, false}}
}

// claim is a claim with its planned steps and the calls in the log.
type claim struct {
	nodeclient.Claim
	Held      []nodestate.HeldDevice
	Plans     []cnichain.Plan
	Timelines []*nodeclient.Timeline
	// Earlier is the number of omitted older calls.
	Earlier int
	// Bad is true if the claim is not attached as expected. After a failure, a claim has no pod until the container
	// runtime creates another sandbox.
	Bad bool
}

// mostCalls is the maximum number of calls shown per claim. The number must be limited, because a pod may be retried
// endlessly.
const mostCalls = 24

// addClaims adds the claims and their logged calls. Claims with problems come first. The page shows neither the
// configurations in plans nor the inputs of calls, because these may contain secrets.
func (d *details) addClaims(answers *nodestate.Answers, read func(namespace, name string) ([]calllog.Call, error)) {
	var bad []claim
	for _, found := range nodeclient.Claims(answers) {
		c := claim{Claim: found}
		for i := range answers.Claims {
			if record := &answers.Claims[i]; record.Claim.UID == found.UID {
				c.Held, c.Plans = record.Devices, record.Plans
			}
		}
		calls, err := read(found.Namespace, found.Name)
		if err != nil {
			d.Unread = append(d.Unread, err.Error())
		}
		calls = slices.DeleteFunc(calls, func(call calllog.Call) bool { return call.ClaimUID != found.UID })
		c.Earlier = max(0, len(calls)-mostCalls)
		c.Timelines = nodeclient.Timelines(calls[c.Earlier:])
		c.Bad = c.State == nodeclient.Failed || c.State == nodeclient.Lost || c.State == nodeclient.Prepared &&
			slices.ContainsFunc(calls, func(call calllog.Call) bool { return call.Error != "" })
		if c.Bad {
			bad = append(bad, c)
		} else {
			d.Claims = append(d.Claims, c)
		}
	}
	d.Claims = append(bad, d.Claims...)
}
