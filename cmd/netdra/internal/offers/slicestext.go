package offers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

// printSlicesText prints slices as text.
func printSlicesText(out *printer.Printer, node upcoming.Node) error {
	devices := map[draslices.EntryID]upcoming.Device{}
	count, bytes := 0, 0
	for pool, parts := range node.Pools {
		for _, slice := range parts {
			data, err := json.Marshal(slice)
			if err != nil {
				return err
			}
			count, bytes = count+1, bytes+len(data)
			flat, err := upcoming.Flatten(slice)
			if err != nil {
				return err
			}
			for _, d := range flat.Devices {
				devices[draslices.EntryID{Pool: pool, Name: d.Name}] = d
			}
		}
	}
	if len(devices) == 0 {
		out.Printf("no device is published")
		return nil
	}
	rows := [][]string{{"POOL", "DEVICE", "TYPE", "USE", "CAPACITY", "CONSUMES", "POLICY"}}
	for i := range node.Entries {
		e := &node.Entries[i]
		rows = append(rows, sliceRow(e, devices[draslices.EntryID{Pool: e.Pool, Name: e.Name}]))
	}
	out.Table(rows)
	out.Printf("\n%s in %s and %s, %d bytes", printer.Plural(len(devices), "device"),
		printer.Plural(len(node.Pools), "pool"), printer.Plural(count, "slice"), bytes)
	return nil
}

// sliceRow returns a device's row in the table. Missing values are "-".
func sliceRow(e *draslices.Entry, d upcoming.Device) []string {
	use := "shared"
	if e.Persona.Exclusive {
		use = "exclusive"
	}
	var consumes []string
	for _, c := range d.ConsumesCounters {
		consumes = append(consumes, consumption(c))
	}
	return []string{e.Pool, e.Name, e.Device.Type, use, cmp.Or(capacityText(d.Capacity), "-"),
		cmp.Or(strings.Join(consumes, ", "), "-"), e.Persona.Policy}
}

// capacityText formats a device's capacities, without the driver's domain, each with its default request.
func capacityText(capacity map[resourceapi.QualifiedName]resourceapi.DeviceCapacity) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		c := capacity[name]
		_, short, _ := strings.Cut(string(name), "/")
		text := fmt.Sprintf("%s=%s", short, c.Value.String())
		if c.RequestPolicy != nil && c.RequestPolicy.Default != nil {
			text += " (default " + c.RequestPolicy.Default.String() + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

// consumption formats a device's consumption from one counter set.
func consumption(c upcoming.Consumption) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(c.Counters)) {
		counter := c.Counters[name]
		amount := "as requested"
		if counter.Value != nil {
			amount = counter.Value.String()
		}
		texts = append(texts, name+"="+amount)
	}
	if len(c.CompatibilityGroups) > 0 {
		texts = append(texts, fmt.Sprint(c.CompatibilityGroups))
	}
	return strings.Join(texts, " ")
}

// printHidden prints problems, and the reasons why devices are not published.
func printHidden(out *printer.Printer, decision policy.Decision, problems []policy.Problem) {
	for _, problem := range slices.Concat(decision.Problems, problems) {
		out.Warn("%s", problem)
	}
	for i := range decision.Devices {
		if d := &decision.Devices[i]; len(d.Personas) == 0 {
			out.Printf("%s %s is not offered: %s", d.Device.Type, d.Device.Name, hiddenBy(d, decision.Problems))
		}
	}
}

// hiddenBy returns the reason why a device is not offered. It refers to problems that have already been printed,
// instead of repeating their text for each device.
func hiddenBy(d *policy.DeviceDecision, problems []policy.Problem) string {
	for _, reason := range d.Reasons {
		if reason.Outcome == policy.Failed && slices.ContainsFunc(problems, func(p policy.Problem) bool {
			return p.Policy == reason.Policy && p.Message == reason.Message
		}) {
			return fmt.Sprintf("policy %s failed, see above", reason.Policy)
		}
		if reason.Outcome == policy.Excludes || reason.Outcome == policy.Failed {
			return reason.String()
		}
	}
	return "no policy matches it"
}
