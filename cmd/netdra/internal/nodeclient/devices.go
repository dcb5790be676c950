package nodeclient

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Device states.
const (
	Free  = "free"
	InUse = "in use"
	// Blocked devices are not in use, but a device that excludes them is.
	Blocked = "blocked"
	// Quarantined and the states below are also values of the device's taint.
	Quarantined = "quarantined"
	// Gone devices no longer exist but are still held by a claim.
	Gone = "gone"
	// Withdrawn devices are no longer exposed by any policy but are still held by a claim.
	Withdrawn = "withdrawn"
	// Unusable devices are published without a CNI plugin, because no plugin in their policy works on the node. No
	// DeviceClass selects them.
	Unusable = "unusable"
)

// Device is one published device.
type Device struct {
	Name       string `json:"name"`
	Pool       string `json:"pool,omitempty"`
	Type       string `json:"type"`
	Interface  string `json:"interface,omitempty"`
	PCIAddress string `json:"pciAddress,omitempty"`
	Use        string `json:"use"` // "shared" or "exclusive"
	Policy     string `json:"policy,omitempty"`
	// Plugins are those CNI plugins in the policy that work on the node. DeviceClasses select devices by plugin.
	Plugins []string `json:"plugins,omitempty"`
	// State is Free, InUse, Blocked, or the reason why the device must not be allocated.
	State string `json:"state"`
	// Why is the reason for the state: the error from a failed cleanup, the blocking device, the missing plugins, the
	// claim that could not be prepared, or the pod that has lost its interface.
	Why string `json:"why,omitempty"`
	// Lost reports whether a pod has lost the device's interface.
	Lost     bool      `json:"lost,omitempty"`
	Holders  []Holder  `json:"holders,omitempty"`
	Counters []Counter `json:"counters,omitempty"`
}

// Holder is a claim that holds a device.
type Holder struct {
	Claim string   `json:"claim"`
	Pods  []string `json:"pods,omitempty"`
	// Since is zero if the time is unknown.
	Since time.Time `json:"since,omitzero"`
	// Refused is the reason why the claim could not be prepared; empty if it was prepared.
	Refused string `json:"refused,omitempty"`
}

// Counter is a capacity that claims share.
type Counter struct {
	Name  string `json:"name"`
	Used  string `json:"used"`
	Total string `json:"total"`
}

// Devices returns the published devices in publication order, followed by quarantined devices that are not published. A
// quarantined device may be published with a taint or not at all, but it must always be listed.
func Devices(answers *nodestate.Answers) []Device {
	devices := make([]Device, 0, len(answers.Published))
	for i := range answers.Published {
		devices = append(devices, device(answers, &answers.Published[i]))
	}
	for i := range answers.Leftovers {
		leftover := &answers.Leftovers[i]
		held := leftover.Quarantines()
		if held == nil {
			continue
		}
		found := false
		for j := range devices {
			if devices[j].Name == held.Name && devices[j].Pool == held.Pool {
				devices[j].State, devices[j].Why, found = Quarantined, leftover.Reason, true
			}
		}
		if !found {
			devices = append(devices, Device{Name: held.Name, Pool: held.Pool, PCIAddress: held.PCIAddress,
				Interface: held.IfName, Use: Use(true), State: Quarantined, Why: leftover.Reason})
		}
	}
	return devices
}

// device converts an entry to a device. When it determines the state, a taint takes precedence over a holder, and a
// holder over a blocking entry. A lost interface changes the state only of an exclusive device, because other pods that
// share a device may still have their interfaces.
func device(answers *nodestate.Answers, entry *draslices.Entry) Device {
	d := Device{
		Name: entry.Name, Pool: entry.Pool, Type: entry.Device.Type, Interface: string(entry.Device.Interface),
		PCIAddress: string(entry.Device.PCIAddress),
		Use:        Use(entry.Persona.Exclusive), Policy: entry.Persona.Policy, Plugins: entry.Persona.Plugins,
		Holders:  holders(answers, entry),
		Counters: counters(answers, entry), State: Free,
	}
	features, listed := featuresOf(answers)
	if listed {
		d.Plugins = features.Working(entry.Persona.Plugins)
	}
	blocker := blockedBy(answers, entry)
	switch {
	case len(entry.Spec.Taints) > 0:
		d.State = entry.Spec.Taints[0].Value
	case len(d.Holders) > 0:
		d.State, d.Why = InUse, refusal(d.Holders)
	case len(d.Plugins) == 0 && listed && !entry.Persona.IsBandwidth():
		d.State, d.Why = Unusable, features.WhyNoneWorks(entry.Persona.Plugins)
	case blocker != "":
		d.State, d.Why = Blocked, blocker+" is in use"
	}
	if lost := lostInterfaces(answers, entry); len(lost) > 0 {
		d.Why, d.Lost = strings.Join(lost, "; "), true
		if d.State == InUse && d.Use == Use(true) {
			d.State = Lost
		}
	}
	return d
}

// refusal describes the claims that hold a device but could not be prepared; empty if there are none.
func refusal(holders []Holder) string {
	var texts []string
	for i := range holders {
		if h := &holders[i]; h.Refused != "" {
			texts = append(texts, fmt.Sprintf("claim %s holds it but could not be prepared: %s", h.Claim, h.Refused))
		}
	}
	return strings.Join(texts, "; ")
}

// featuresOf returns the CNI plugins that the driver has found. The second result is false if the driver could not list
// them.
func featuresOf(answers *nodestate.Answers) (draslices.Features, bool) {
	return draslices.Features{CNIBinaries: sets.New(answers.State.CNIPlugins...),
		UnusableCNIs: answers.State.UnusableCNIs}, answers.State.CNIPlugins != nil
}

// lostInterfaces describes the pods that have lost an entry's interface, with one string per interface name.
func lostInterfaces(answers *nodestate.Answers, entry *draslices.Entry) []string {
	pods := map[string][]string{} // keyed by interface name
	for i := range answers.Sandboxes {
		for _, link := range answers.Sandboxes[i].Interfaces {
			if link.Missing != "" && link.Pool == entry.Pool && link.Device == entry.Name {
				pods[link.Missing] = append(pods[link.Missing], answers.Sandboxes[i].Pod.String())
			}
		}
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		holder := "pod " + pods[name][0]
		if more := len(pods[name]) - 1; more > 0 {
			holder += fmt.Sprintf(" and in %s", printer.Plural(more, "other"))
		}
		texts = append(texts, nodestate.MissingText(holder, name))
	}
	return texts
}

// Use returns the word used for exclusive or shared devices.
func Use(exclusive bool) string {
	if exclusive {
		return "exclusive"
	}
	return "shared"
}

// holders returns the claims that hold a published device, sorted by name, and their pods. A shared device may have
// several holders.
func holders(answers *nodestate.Answers, entry *draslices.Entry) []Holder {
	var found []Holder
	for _, holding := range nodestate.Holdings(answers.Claims, answers.State.Refused) {
		if !holding.Holds(entry.Pool, entry.Name) {
			continue
		}
		holder := Holder{Claim: holding.Claim.String(), Pods: slices.Clone(holding.Pods), Since: holding.Since,
			Refused: holding.Refused}
		for i := range answers.Sandboxes {
			box := &answers.Sandboxes[i]
			// A terminated sandbox does not hold any devices.
			if slices.Contains(box.Claims, holding.Claim.UID) && box.State != nodestate.SandboxEnded {
				holder.Pods = append(holder.Pods, box.Pod.String())
			}
		}
		found = append(found, holder)
	}
	slices.SortFunc(found, func(a, b Holder) int { return cmp.Compare(a.Claim, b.Claim) })
	return found
}

// counters adds up the capacity consumed by all claims, as the scheduler does (KEP-5075).
func counters(answers *nodestate.Answers, entry *draslices.Entry) []Counter {
	var found []Counter
	for _, capacity := range entry.Persona.Capacity {
		var used resource.Quantity
		name := resourceapi.QualifiedName(policyapi.QualifiedName(capacity.Name))
		for _, holding := range nodestate.Holdings(answers.Claims, answers.State.Refused) {
			for _, device := range holding.Devices {
				if device.Pool == entry.Pool && device.Name == entry.Name {
					used.Add(device.Consumed[name])
				}
			}
		}
		found = append(found, Counter{Name: capacity.Name, Used: used.String(), Total: capacity.Value.String()})
	}
	return found
}

// blockedBy returns the name of a device that is in use and excludes an entry; empty if there is no such device.
func blockedBy(answers *nodestate.Answers, entry *draslices.Entry) string {
	for i := range answers.Published {
		if other := &answers.Published[i]; excludes(other, entry) && len(holders(answers, other)) > 0 {
			return other.Name
		}
	}
	return ""
}

// excludes reports whether two entries cannot be in use at the same time. Entries for the same device exclude each
// other unless both are shared and they are not in the same exclusion group. An exclusive physical function and its
// virtual functions also exclude each other.
//
// Package slices expresses the same rules as counters for the scheduler. They are duplicated here because netdra shows
// names rather than numbers.
func excludes(entry, other *draslices.Entry) bool {
	if entry.Pool == other.Pool && entry.Name == other.Name {
		return false
	}
	if entry.Device.Name == other.Device.Name {
		group := entry.Persona.ExclusionGroup
		return entry.Persona.Exclusive || other.Persona.Exclusive || group != "" &&
			group == other.Persona.ExclusionGroup
	}
	isFunctionOf := func(function, physical *draslices.Entry) bool {
		return function.Device.PFAddress != "" && function.Device.PFAddress == physical.Device.PCIAddress &&
			physical.Persona.Exclusive
	}
	return isFunctionOf(entry, other) || isFunctionOf(other, entry)
}

// HeldBy returns text that lists the holders.
func (d *Device) HeldBy() string {
	var texts []string
	for _, holder := range d.Holders {
		text := holder.Claim
		if len(holder.Pods) > 0 {
			text += " (pod " + strings.Join(holder.Pods, ", ") + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// heldByShort returns a short form of HeldBy for tables. If there are several claims or pods, it returns their number
// and only the first name, because a shared device may have hundreds. It prefers a claim with a pod, because the owner
// of the pod can be contacted.
func (d *Device) heldByShort() string {
	if len(d.Holders) == 0 {
		return ""
	}
	first := max(slices.IndexFunc(d.Holders, func(h Holder) bool { return len(h.Pods) > 0 }), 0)
	text := d.Holders[first].Claim
	switch pods := d.Holders[first].Pods; {
	case len(pods) == 1:
		text += " (pod " + pods[0] + ")"
	case len(pods) > 1:
		text += fmt.Sprintf(" (%d pods: %s, …)", len(pods), pods[0])
	}
	if len(d.Holders) > 1 {
		return fmt.Sprintf("%d claims: %s, …", len(d.Holders), text)
	}
	return text
}

// Since returns the earliest Since among the holders; zero if none is known.
func (d *Device) Since() time.Time {
	var first time.Time
	for _, holder := range d.Holders {
		if first.IsZero() || !holder.Since.IsZero() && holder.Since.Before(first) {
			first = holder.Since
		}
	}
	return first
}

// CountersText returns the counters in the form name=used/total.
func (d *Device) CountersText() string {
	var texts []string
	for _, counter := range d.Counters {
		texts = append(texts, fmt.Sprintf("%s=%s/%s", counter.Name, counter.Used, counter.Total))
	}
	return strings.Join(texts, " ")
}

// ListDevices prints the devices that the driver publishes. If names are given, it prints only the devices with these
// names.
func ListDevices(ctx context.Context, streams printer.Streams, socket, form string, names []string) error {
	answers, err := Read(ctx, New(socket).Get, nodeapi.PathPublished, nodeapi.PathClaims, nodeapi.PathSandboxes,
		nodeapi.PathLeftovers, nodeapi.PathState)
	if err != nil {
		return err
	}
	devices, err := choose(Devices(answers), names, func(d *Device, name string) bool {
		return d.Name == name || d.Interface == name || d.PCIAddress == name
	}, "no device %[1]s is offered; for the reason, run \"netdra explain %[1]s\"")
	if err != nil {
		return err
	}
	err = printer.List(streams.Out, form, devices, DeviceColumns(),
		"no device is offered; for the reason, run \"netdra explain DEVICE\"")
	if form == printer.FormTable || form == printer.FormWide {
		for i := range devices {
			if devices[i].Why != "" {
				printer.New(streams.Out).Warn("%s: %s", devices[i].Name, devices[i].Why)
			}
		}
	}
	return err
}

// DeviceColumns returns the columns of a device table.
func DeviceColumns() []printer.Column[Device] {
	return []printer.Column[Device]{
		{Title: "DEVICE", Value: func(d *Device) string { return d.Name }},
		{Title: "TYPE", Value: func(d *Device) string { return d.Type }},
		{Title: "USE", Value: func(d *Device) string { return d.Use }},
		{Title: "STATE", Value: func(d *Device) string { return d.State }},
		{Title: "USED", Value: (*Device).CountersText},
		{Title: "HELD BY", Value: (*Device).heldByShort},
		{Title: "SINCE", Value: func(d *Device) string { return printer.Time(d.Since()) }},
		{Title: "POOL", Wide: true, Value: func(d *Device) string { return d.Pool }},
		{Title: "PCI", Wide: true, Value: func(d *Device) string { return d.PCIAddress }},
		{Title: "POLICY", Wide: true, Value: func(d *Device) string { return d.Policy }},
		{Title: "CNI PLUGINS", Wide: true, Value: func(d *Device) string { return strings.Join(d.Plugins, ", ") }},
		{Title: "CLAIMS", Wide: true, Value: (*Device).HeldBy},
	}
}
