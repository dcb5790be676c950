package executor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

const (
	// gidWait is how long an attachment waits for the GIDs of its addresses. The kernel adds GIDs from a work queue,
	// while holding its lock for link changes, usually within a millisecond. A link without its own RDMA port never
	// gets GIDs, so every pod that uses such a link starts gidWait later.
	gidWait = 500 * time.Millisecond
	// gidInterval is the delay before the GID table is reread. It doubles after each read.
	gidInterval = 2 * time.Millisecond
)

// Verbs is the information that a pod's application needs to use a step's RDMA devices.
type Verbs struct {
	Devices []cnichain.VerbsDevice `json:"devices,omitempty"`
	// Unknown is the reason why GIDs are missing from Devices. It is empty if Devices has a GID for each address on the
	// chain's interfaces.
	Unknown string `json:"unknown,omitempty"`
}

// VerbsReader reads the addressing information for RDMA devices. It reads each GID table only once, since many pods may
// use the same shared device. It caches all results, so create a new reader for each round. It is not safe for
// concurrent use.
type VerbsReader struct {
	executor *Executor
	tables   map[string]verbsTable
	links    map[string][]cnichain.LinkAddresses
}

type verbsTable struct {
	verbs   string
	entries []cnichain.GIDEntry
}

// VerbsReader creates a reader without doing any I/O.
func (e *Executor) VerbsReader() *VerbsReader {
	return &VerbsReader{executor: e, tables: map[string]verbsTable{}, links: map[string][]cnichain.LinkAddresses{}}
}

// Read returns the addressing information for the step with the given index in an attachment whose namespace is pinned.
// It returns nil for a step without RDMA devices. Failures are part of the result, since a pod can run without this
// information.
func (r *VerbsReader) Read(pin string, steps []StepRecord, step int) *Verbs {
	if len(steps[step].RDMA) == 0 || steps[step].Phase != StepAdded {
		return nil
	}
	verbs, _ := r.read(pin, steps, step)
	return verbs
}

// read also returns the addresses that have no GID yet.
func (r *VerbsReader) read(pin string, steps []StepRecord, step int) (verbs *Verbs, without []string) {
	verbs = &Verbs{}
	devices, missing, err := r.executor.RDMANow(pin, &steps[step])
	if err == nil && missing != "" {
		err = fmt.Errorf("RDMA device %s is no longer in the pod", missing)
	}
	var links []cnichain.LinkAddresses
	if err == nil {
		links, err = r.addresses(pin)
	}
	if err != nil {
		verbs.Unknown = err.Error()
		return verbs, nil
	}
	netns := ""
	if len(steps[step].Step.Device.Moved) > 0 {
		netns = pin
	}
	interfaces := linksOf(steps, step)
	var problems []string
	listed := 0
	for _, device := range devices {
		table, err := r.table(netns, device)
		if err != nil {
			problems = append(problems, err.Error())
		}
		if device.Protocol == cnichain.RDMAProtocolIWARP { // with iWARP, addresses have no GIDs
			problems = append(problems, fmt.Sprintf("RDMA device %s uses iWARP, where addresses have no GIDs: "+
				"connect by the address (rdma_cm)", device.Name))
			table.entries = nil
		}
		gids, ambiguous := cnichain.FindGIDs(table.entries, ofLinks(links, interfaces))
		problems = append(problems, ambiguous...)
		verbs.Devices = append(verbs.Devices, cnichain.VerbsDevice{Name: device.Name, Verbs: table.verbs, GIDs: gids})
		listed += len(gids)
	}
	if len(problems) == 0 {
		without = cnichain.WithoutGID(verbs.Devices, links, interfaces)
	}
	if len(without) > 0 {
		problems = append(problems, "the kernel has no GID for "+joinFirst(without, ", "))
	}
	if verbs.shorten(); listed > cnichain.MaxGIDs {
		problems = append(problems, fmt.Sprintf("there are %d GIDs, and %d are listed", listed, cnichain.MaxGIDs))
	}
	verbs.Unknown = joinFirst(problems, "; ")
	return verbs, without
}

// joinFirst joins the first few strings and appends how many were omitted, since an application can have thousands of
// addresses.
func joinFirst(texts []string, separator string) string {
	const limit = 4
	if len(texts) <= limit {
		return strings.Join(texts, separator)
	}
	return fmt.Sprintf("%s%sand %d more", strings.Join(texts[:limit], separator), separator, len(texts)-limit)
}

// shorten truncates the lists of GIDs so that their total does not exceed the limit, with a fair share for each device.
func (v *Verbs) shorten() {
	left := cnichain.MaxGIDs
	for i := range v.Devices {
		share := left / (len(v.Devices) - i)
		v.Devices[i].GIDs = v.Devices[i].GIDs[:min(share, len(v.Devices[i].GIDs))]
		left -= len(v.Devices[i].GIDs)
	}
}

// linksOf returns the indexes of the interfaces created or moved by a step and its dependents.
func linksOf(steps []StepRecord, root int) (indexes []int) {
	chain := []int{root}
	for i := range steps {
		if i != root && !slices.ContainsFunc(steps[i].Step.DependsOn,
			func(parent int) bool { return slices.Contains(chain, parent) }) {
			continue
		}
		chain = append(chain, i)
		if steps[i].Link != nil && !slices.Contains(indexes, steps[i].Link.Index) {
			indexes = append(indexes, steps[i].Link.Index)
		}
	}
	return indexes
}

func ofLinks(links []cnichain.LinkAddresses, indexes []int) []cnichain.LinkAddresses {
	return slices.DeleteFunc(slices.Clone(links),
		func(link cnichain.LinkAddresses) bool { return !slices.Contains(indexes, link.Index) })
}

// addresses returns the addresses on a pod's links. It reads them once for all of the pod's RDMA devices.
func (r *VerbsReader) addresses(pin string) ([]cnichain.LinkAddresses, error) {
	if links, known := r.links[pin]; known {
		return links, nil
	}
	links, err := r.executor.Host.Addresses(pin)
	if err == nil {
		r.links[pin] = links
	}
	return links, err
}

// table returns a device's GID table in a namespace. It reads the table once for all interfaces that use the device.
func (r *VerbsReader) table(netns string, device cnichain.RDMADevice) (verbsTable, error) {
	key := fmt.Sprint(netns, " ", device.Index)
	if table, known := r.tables[key]; known {
		return table, nil
	}
	var table verbsTable
	var err error
	if table.verbs, table.entries, err = r.executor.Host.VerbsDevice(netns, device); err == nil {
		r.tables[key] = table
	}
	return table, err
}

// readVerbs records the addressing information for RDMA devices after all steps have completed. It waits for GIDs for a
// limited time, since an attachment without GIDs is still valid.
func (e *Executor) readVerbs(ctx context.Context, attachment *Attachment) {
	deadline := e.Clock.Now().Add(gidWait)
	for interval := gidInterval; ; interval *= 2 {
		reader, missing := e.VerbsReader(), false
		for i := range attachment.Steps {
			if record := &attachment.Steps[i]; len(record.RDMA) > 0 {
				var without []string
				record.Verbs, without = reader.read(attachment.Pin, attachment.Steps, i)
				missing = missing || len(without) > 0
			}
		}
		if !missing || !e.Clock.Now().Before(deadline) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-e.Clock.After(interval):
		}
	}
}
