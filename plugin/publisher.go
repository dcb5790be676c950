package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// scanPeriod is how often the host is read when nothing seems to change.
const scanPeriod = time.Minute

// publisher keeps the node's ResourceSlices what the facts and the policies say: always computed from a fresh reading.
type publisher struct {
	cluster *cluster
	claims  *claims
	// read reads the devices of the node, which the cluster knows by the addresses.
	read    func(context.Context, []netip.Addr) (discovery.Facts, error)
	events  discovery.Events
	period  time.Duration // of scans
	cniDirs []string
	// publish hands the complete resources to the controller that writes slices.
	publish func(context.Context, resourceslice.DriverResources) error

	triggers chan struct{}
	speeds   map[string]int // by device, the last that was read; only refresh uses it

	mu        sync.Mutex
	entries   map[entryKey]draslices.Entry
	published bool
	last      resourceslice.DriverResources
	problems  []string
}

type entryKey struct{ pool, device string }

func newPublisher(cluster *cluster, claims *claims, sources discovery.Sources, cniDirs []string) *publisher {
	read := func(ctx context.Context, addresses []netip.Addr) (discovery.Facts, error) {
		from := sources
		from.NodeAddresses = addresses
		return discovery.Read(ctx, from)
	}
	return &publisher{
		cluster: cluster, claims: claims, read: read, events: discovery.KernelEvents(), period: scanPeriod, cniDirs: cniDirs,
		triggers: make(chan struct{}, 1),
	}
}

// trigger asks for a fresh computation.
func (p *publisher) trigger() {
	select {
	case p.triggers <- struct{}{}:
	default:
	}
}

// run publishes until ctx ends. The first computation has been made by refresh.
func (p *publisher) run(ctx context.Context) error {
	changes, err := discovery.Watch(ctx, p.events, p.period)
	if err != nil {
		return err
	}
	for {
		if err := p.refresh(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot compute the node's devices; what is published stays")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.triggers:
		case <-changes:
		}
	}
}

// refresh reads the host, computes the slices and hands them on if they changed. Devices in use stay as they were when
// their claim was prepared: where they are now, discovery can't see them.
func (p *publisher) refresh(ctx context.Context) error {
	node, err := p.cluster.thisNode()
	if err != nil {
		return err
	}
	plugins, err := binaries(p.cniDirs)
	if err != nil {
		return err
	}
	// A device that is released while the host is read may be seen half-way home; it is taken as it was this once more.
	inUse, held := p.claims.inUse(), p.claims.held()
	facts, err := p.read(ctx, addresses(node))
	if err != nil {
		return err
	}
	p.rememberSpeeds(&facts)
	facts = facts.With(inUse...).With(p.claims.inUse()...)
	maps.Copy(held, p.claims.held())
	decision := policy.Resolve(facts, p.cluster.exposurePolicies(), policy.Node{Name: node.Name, Labels: node.Labels})
	result, err := draslices.Build(p.cluster.nodeName, decision, draslices.Features{CNIBinaries: plugins, Held: held})
	if err != nil {
		return err
	}
	p.report(ctx, &facts, &decision, &result)
	entries := make(map[entryKey]draslices.Entry, len(result.Entries))
	for _, entry := range result.Entries {
		entries[entryKey{pool: entry.Pool, device: entry.Name}] = entry
	}
	p.mu.Lock()
	p.entries = entries
	same := p.published && reflect.DeepEqual(p.last, result.Resources)
	publish := p.publish
	p.mu.Unlock()
	if same || publish == nil {
		return nil
	}
	klog.FromContext(ctx).V(2).Info("Publishing", "pools", len(result.Resources.Pools), "devices", len(result.Entries))
	if err := publish(ctx, result.Resources); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.published = result.Resources, true
	return nil
}

// startPublishing sets where resources go.
func (p *publisher) startPublishing(publish func(context.Context, resourceslice.DriverResources) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publish = publish
}

// report logs problems when they change.
func (p *publisher) report(ctx context.Context, facts *discovery.Facts, decision *policy.Decision, result *draslices.Result) {
	var problems []string
	for _, problem := range facts.Problems {
		problems = append(problems, problem.String())
	}
	for _, problem := range decision.Problems {
		problems = append(problems, problem.String())
	}
	for _, problem := range result.Problems {
		problems = append(problems, problem.String())
	}
	p.mu.Lock()
	same := reflect.DeepEqual(p.problems, problems)
	p.problems = problems
	p.mu.Unlock()
	if same {
		return
	}
	for _, problem := range problems {
		klog.FromContext(ctx).Info("Problem with the node's devices", "problem", problem)
	}
}

// resolve finds what an allocated device is.
func (p *publisher) resolve(result *resourceapi.DeviceRequestAllocationResult) (HeldDevice, cnichain.Device, error) {
	p.mu.Lock()
	entry, known := p.entries[entryKey{pool: result.Pool, device: result.Device}]
	p.mu.Unlock()
	if !known {
		return HeldDevice{}, cnichain.Device{}, fmt.Errorf(
			"device %s of pool %s is not offered any more: its policy or the device itself is gone; delete the claim to have another one allocated", result.Device, result.Pool)
	}
	shareID := ""
	if result.ShareID != nil {
		shareID = string(*result.ShareID)
	}
	held := HeldDevice{
		Request: result.Request, Pool: result.Pool, Name: result.Device, ShareID: shareID,
		Exclusive: entry.Persona.Exclusive, Bandwidth: entry.Bandwidth, Facts: entry.Device,
	}
	facts := &entry.Device
	attributes := plainAttributes(entry.Spec.Attributes)
	if entry.Bandwidth > 0 {
		attributes["bandwidth"] = entry.Bandwidth // for a step that limits the traffic to it
	}
	return held, cnichain.Device{
		Pool: held.Pool, Name: held.Name, ShareID: shareID, Request: held.Request, Exclusive: held.Exclusive, CNIs: entry.Persona.Plugins,
		IfName: string(facts.Interface), PCIAddress: string(facts.PCIAddress), PF: string(facts.PFAddress),
		Attributes: attributes,
	}, nil
}

// plainAttributes are the published attributes for templates: those of our domain by their bare names.
func plainAttributes(attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) map[string]any {
	plain := make(map[string]any, len(attributes))
	for name, attribute := range attributes {
		key := bareName(string(name))
		switch {
		case attribute.StringValue != nil:
			plain[key] = *attribute.StringValue
		case attribute.IntValue != nil:
			plain[key] = *attribute.IntValue
		case attribute.BoolValue != nil:
			plain[key] = *attribute.BoolValue
		}
	}
	return plain
}

func bareName(name string) string {
	const domain = v1alpha1.DriverName + "/"
	if len(name) > len(domain) && name[:len(domain)] == domain {
		return name[len(domain):]
	}
	return name
}

// rememberSpeeds gives devices without a speed the last one they had: a link that is down, or on its way home, has none,
// and what is published must not change with that.
func (p *publisher) rememberSpeeds(facts *discovery.Facts) {
	speeds := make(map[string]int, len(facts.Devices))
	for i := range facts.Devices {
		device := &facts.Devices[i]
		if device.LinkSpeed == 0 {
			device.LinkSpeed = p.speeds[identity(*device)]
		}
		speeds[identity(*device)] = device.LinkSpeed
	}
	for _, device := range p.claims.inUse() { // perhaps not on the host
		speeds[identity(device)] = max(speeds[identity(device)], device.LinkSpeed)
	}
	p.speeds = speeds
}

// binaries are the executable files in the CNI directories. A directory that is not there has none.
func binaries(dirs []string) (sets.Set[string], error) {
	found := sets.New[string]()
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("cannot list the CNI plugins of the node: %w", err)
		}
		for _, entry := range entries {
			if info, err := os.Stat(filepath.Join(dir, entry.Name())); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
				found.Insert(entry.Name())
			}
		}
	}
	return found, nil
}
