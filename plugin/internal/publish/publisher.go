package publish

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

const (
	// scanPeriod is the interval at which the host is scanned even if no changes are reported.
	scanPeriod = time.Minute
	// refreshRetry is the delay before a failed computation is retried.
	refreshRetry = 5 * time.Second
	// freeMemoryAfter is the time without changes after which memory is returned to the kernel. While pods are starting
	// one after another, the memory would be needed again immediately. If it were never returned explicitly, the Go
	// runtime would keep most of it for minutes.
	freeMemoryAfter = 2 * time.Second
	// refreshLimit is the time without a scan of the host after which the driver is considered hung.
	refreshLimit = 5 * time.Minute
	// pauseFactor is the ratio between the pause after a scan and the duration of the scan. Changes to pods and links
	// trigger scans, and policies can make scans expensive; the factor limits them to about a tenth of a CPU.
	pauseFactor = 10
	// shortestPause is the minimum time between a trigger and the scan: once its claim is prepared, a starting pod
	// causes several bursts of changes, and a scan during that phase would take CPU time away from the pod's startup.
	shortestPause = 500 * time.Millisecond
	// startsLimit limits the additional delay while claims are being prepared and released.
	startsLimit = 2 * time.Second
	// longestPause limits the pause: if the machine was suspended during a scan, the scan seems to have taken very
	// long, but the resulting pause must not hide new devices for long.
	longestPause = time.Minute
)

// Devices are first published once no device has appeared for settleQuiet, or after settleLimit.
const (
	settleQuiet = 2 * time.Second
	settleLimit = 20 * time.Second
)

// Cluster reads API server objects from caches, which may lag behind.
type Cluster interface {
	// ThisNode returns the Node object.
	ThisNode() (*corev1.Node, error)
	// ExposurePolicies returns the policies, sorted by name.
	ExposurePolicies() []policyapi.DeviceExposurePolicy
	// PluginSchemas returns the built-in plugin schemas, overridden by those in the cluster.
	PluginSchemas() cnichain.Schemas
}

// Config contains the dependencies and settings of a publisher.
type Config struct {
	// NodeName is the name of the node. BootID identifies the node's current boot, since device names are valid for
	// only one boot.
	NodeName, BootID string
	Cluster          Cluster
	Claims           *claims.Store
	// Client is used to detect which features the API server supports.
	Client kubernetes.Interface
	// ListAttributes and CompatibilityGroups enable optional features.
	ListAttributes, CompatibilityGroups bool
	// DB stores device names, link speeds and lost carriers. If it is nil, they are lost when the process exits.
	DB *journal.DB
	// Read reads the node's devices, given the node's addresses in the cluster; Events reports when to read them again.
	Read   func(context.Context, []netip.Addr) (discovery.Facts, error)
	Events discovery.Events
	// CNIDirs are the directories that are searched for CNI plugins.
	CNIDirs []string
	// MissingLinkTypes returns the given link types that the kernel does not support. If the function is nil, all link
	// types are considered available.
	MissingLinkTypes func(linkTypes []string) ([]string, error)
	// Quarantined reports whether a device is quarantined.
	Quarantined func(discovery.Device) bool
	// MayBeInPod reports whether a device that a claim holds but that is not on the host may be in a pod.
	MayBeInPod func(claimUID string, held *claims.HeldDevice) bool
	// HealthChanged is called when the health of any device may have changed.
	HealthChanged func()
	Recorder      record.EventRecorder
	Metrics       *Metrics
	Heartbeats    *telemetry.Heartbeats
	// FreeMemory returns the memory used by the last computation to the kernel. It is called once nothing has changed
	// for [freeMemoryAfter].
	FreeMemory func()
	Clock      clock.Clock
}

// Publisher keeps the node's ResourceSlices in sync with the facts and the policies. It recomputes them after each scan
// of the host.
type Publisher struct {
	Config
	resolver policy.Resolver
	memory   *deviceMemory
	server   *apiServer
	// carriers tracks the links that have lost their carrier.
	carriers *carrierTracker
	period   time.Duration // interval between scans
	// logged contains the last message that was logged about each device at the log level for decisions.
	logged map[string]string

	offers         offers
	triggers, soon chan struct{}

	mu sync.Mutex
	// publish passes the complete resources to the controller that writes the slices.
	publish func(context.Context, resourceslice.DriverResources) error
	// published is the digest of the resources that were last published. The zero digest forces the next publication.
	published [sha256.Size]byte
	problems  []finding       // from the last computation; only Refresh sets them
	gone      map[string]bool // identities of allocated devices that no longer exist
	unusable  map[string]string
}

// New creates a publisher; Run starts it. New ignores unreadable parts of the journal, but returns them.
func New(config Config) (*Publisher, []journal.Damaged, error) {
	memory, damaged, err := loadDeviceMemory(config.DB, config.BootID, config.Clock)
	if err != nil {
		return nil, nil, err
	}
	return &Publisher{
		Config: config, memory: memory, carriers: newCarrierTracker(config.Clock, memory.kept.Lost...),
		server: &apiServer{client: config.Client, node: config.NodeName, clock: config.Clock,
			lists: config.ListAttributes, groups: config.CompatibilityGroups},
		period: scanPeriod, triggers: make(chan struct{}, 1), soon: make(chan struct{}, 1),
	}, damaged, nil
}

// Trigger requests a new computation.
func (p *Publisher) Trigger() { request(p.triggers) }

// TriggerSoon requests a computation that is not delayed in proportion to the duration of the last scan. It is intended
// for changes made by administrators, for example to policies or node labels, which may withdraw devices and do not
// occur for every pod.
func (p *Publisher) TriggerSoon() { request(p.soon) }

func request(requests chan<- struct{}) {
	select {
	case requests <- struct{}{}:
	default:
	}
}

// Watch returns a channel that receives a value whenever the devices should be read again.
func (p *Publisher) Watch(ctx context.Context) (<-chan struct{}, error) {
	return discovery.Watch(ctx, p.Events, p.period)
}

// Settle starts publishing once no device has appeared for a while.
func (p *Publisher) Settle(
	ctx context.Context, publish func(context.Context, resourceslice.DriverResources) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // stops the notifications
	changes, err := p.Watch(ctx)
	if err != nil {
		return err
	}
	if err := discovery.Settled(ctx, changes, settleQuiet, settleLimit); err != nil {
		return nil //nolint:nilerr // ctx is done
	}
	p.StartPublishing(publish)
	p.TriggerSoon() // the slices still reflect the previous driver process and its policies
	return nil
}

// Run computes the devices immediately and shortly after every change until ctx is done. It publishes them as soon as
// publishing has been started.
func (p *Publisher) Run(ctx context.Context, changes <-chan struct{}) {
	const loop = "discovery"
	defer p.Heartbeats.End(loop)
	for {
		p.Heartbeats.Beat(loop, refreshLimit)
		start := p.Clock.Now()
		var again <-chan time.Time
		if err := p.Refresh(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err,
				"Cannot compute the devices of the node; keeping the published ResourceSlices", "again", refreshRetry)
			p.offers.fail(err)
			again = time.After(refreshRetry)
		} else if wait := soonest(p.carriers.retryAfter(), p.memory.retryAfter()); wait > 0 {
			again = time.After(wait)
		}
		end := p.Clock.Now()
		if !p.wait(ctx, changes, again) || !p.pause(ctx, changes, end, end.Sub(start)) {
			return
		}
	}
}

// pause delays the next scan in proportion to the duration of the last one. It returns false if ctx is done. A scan
// serves all requests that arrived before it started.
func (p *Publisher) pause(ctx context.Context, changes <-chan struct{}, last time.Time, taken time.Duration) bool {
	long := p.Clock.NewTimer(max(min(pauseFactor*taken, longestPause)-p.Clock.Since(last), shortestPause))
	defer long.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-long.C():
		if !p.awaitStarts(ctx) {
			return false
		}
	case <-p.soon:
		short := p.Clock.NewTimer(shortestPause)
		defer short.Stop()
		select {
		case <-ctx.Done():
			return false
		case <-long.C():
		case <-short.C():
		}
	}
	for _, reasons := range []<-chan struct{}{p.triggers, p.soon, changes} {
		select {
		case <-reasons:
		default:
		}
	}
	return true
}

// awaitStarts waits until no claim has been prepared or released for [shortestPause], but for no longer than
// [startsLimit]: a scan delays pods that are starting, because both need the kernel's lock for link changes. It returns
// false when ctx is done.
func (p *Publisher) awaitStarts(ctx context.Context) bool {
	limit := p.Clock.NewTimer(startsLimit)
	defer limit.Stop()
	for {
		select {
		case <-p.triggers:
		default:
			return true
		}
		quiet := p.Clock.NewTimer(shortestPause)
		select {
		case <-ctx.Done():
			quiet.Stop()
			return false
		case <-limit.C():
			quiet.Stop()
			return true
		case <-p.soon: // for example a policy has changed
			quiet.Stop()
			return true
		case <-quiet.C():
		}
	}
}

// wait waits for a reason to compute the devices again. It returns false if ctx is done.
func (p *Publisher) wait(ctx context.Context, changes <-chan struct{}, again <-chan time.Time) bool {
	quiet := time.After(freeMemoryAfter)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-quiet:
			p.FreeMemory()
			continue
		case <-p.triggers:
		case <-p.soon:
			p.TriggerSoon() // consumed by pause
		case <-changes:
		case <-again:
		}
		return true
	}
}

// soonest returns the shorter of two delays; 0 means that nothing is pending.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// Refresh reads the host, computes the slices and publishes them if they have changed.
//
// It performs all operations that can fail first and then computes the slices without I/O. If any error occurs, the
// published slices stay unchanged: slices based on an incomplete scan would withdraw existing devices from the
// scheduler.
func (p *Publisher) Refresh(ctx context.Context) (err error) {
	start := time.Now()
	defer func() { telemetry.Observe(p.Metrics.refreshes, time.Since(start), err) }()
	node, err := p.Cluster.ThisNode()
	if err != nil {
		return err
	}
	server, err := p.server.detect(ctx)
	if err != nil {
		return err
	}
	plugins, err := Binaries(p.CNIDirs)
	if err != nil {
		return err
	}
	facts, held, err := p.facts(ctx, node)
	if err != nil {
		return err
	}
	decision, err := p.resolver.Resolve(ctx, facts, p.Cluster.ExposurePolicies(),
		policy.Node{Name: node.Name, Labels: node.Labels})
	if err != nil {
		return err
	}
	schemas := p.Cluster.PluginSchemas()
	result, err := draslices.Build(p.NodeName, decision, draslices.Features{
		CNIBinaries: plugins, UnusableCNIs: p.findUnusable(ctx, plugins, &decision, schemas),
		MovingCNIs: sets.New(schemas.Moving()...), StackingCNIs: sets.New(schemas.Stacking()...), Held: held,
		PCIAddressCNIs: sets.New(schemas.ByPCIAddress()...),
		ListAttributes: p.server.lists, CompatibilityGroups: server.groups,
	})
	if err != nil {
		return err
	}
	result = result.Tainted(p.taintsOf).Without(server.missing)
	p.reportProblems(ctx, findings(&facts, &decision, &result, server.problems), &decision, &result)
	p.logDecision(ctx, &decision)
	return p.handOn(ctx, &result)
}

// findUnusable returns, for each installed CNI plugin that a policy uses but that cannot work on this node, the reason.
// It checks only plugins for which devices would be offered: querying the kernel for a link type loads the module for
// that type, and some modules create links when they are loaded.
func (p *Publisher) findUnusable(
	ctx context.Context, installed sets.Set[string], decision *policy.Decision, schemas cnichain.Schemas,
) map[string]string {
	named := sets.New[string]()
	for i := range decision.Devices {
		for j := range decision.Devices[i].Personas {
			named.Insert(decision.Devices[i].Personas[j].Plugins...)
		}
	}
	unusable, err := schemas.KernelLacks(sets.List(named.Intersection(installed)), p.MissingLinkTypes)
	if err != nil {
		// Assume that all link types that the plugins need are available, since withdrawing the node's devices would be
		// worse.
		klog.FromContext(ctx).Error(err, "Cannot query the link types of the kernel; assuming that all are available")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unusable = unusable
	return unusable
}

// UnusableCNIs returns, for each installed CNI plugin that a policy uses but that cannot work on the node, the reason.
func (p *Publisher) UnusableCNIs() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.unusable)
}

// facts reads the host. Devices that claims hold exclusively keep the facts from when the claim was prepared, because
// discovery cannot see devices in pods.
func (p *Publisher) facts(
	ctx context.Context, node *corev1.Node,
) (facts discovery.Facts, held map[draslices.EntryID]draslices.Holding, err error) {
	before := p.Claims.All()
	suspects := before.GoneDevices(nil, p.MayBeInPod)
	seen, err := p.Read(ctx, NodeAddresses(node))
	if err != nil {
		return facts, nil, err
	}
	r := reading{before: before, seen: seen, after: p.Claims.All()}
	changed := p.setGone(r.goneDevices(suspects, p.MayBeInPod))
	if p.carriers.observe(seen) || changed {
		p.HealthChanged()
	}
	inUse := r.inUse()
	facts = r.merge(p.memory.restore(seen, inUse...))
	if err := p.memory.keep(facts, inUse, p.carriers.links()); err != nil {
		return facts, nil, fmt.Errorf("cannot record device names in the journal: %w", err)
	}
	return facts, r.holdings(), nil
}

func (p *Publisher) setGone(gone map[string]bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = !maps.Equal(p.gone, gone)
	p.gone = gone
	return changed
}

// LostCarrier reports whether a device, or the physical function of a virtual function, has lost its carrier.
func (p *Publisher) LostCarrier(device discovery.Device) bool { return p.carriers.isLost(device) }

// IsGone reports whether a device that a claim holds no longer exists.
func (p *Publisher) IsGone(device discovery.Device) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone[claims.Identity(device)]
}

// HandleError handles errors that occur when slices are written.
func (p *Publisher) HandleError(ctx context.Context, err error, msg string) {
	klog.FromContext(ctx).Error(err, msg)
	// The slices have been written, but without the dropped fields. The digest is reset so that the next computation
	// publishes again, this time without the devices that need these fields.
	if dropped := (*resourceslice.DroppedFieldsError)(nil); errors.As(err, &dropped) {
		// Without the dropped fields, the published slices may no longer keep mutually exclusive devices apart.
		p.server.dropped(dropped.DisabledFeatures())
		p.mu.Lock()
		p.published = [sha256.Size]byte{}
		p.mu.Unlock()
		p.Trigger()
	}
}

// StartPublishing sets the function that receives the resources from now on.
func (p *Publisher) StartPublishing(publish func(context.Context, resourceslice.DriverResources) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publish = publish
}

// handOn makes the entries available to Prepare and publishes the resources if they have changed.
//
// The entries are made available first: the scheduler may allocate a device as soon as its slice is written, and the
// kubelet prepares the claim a moment later.
func (p *Publisher) handOn(ctx context.Context, result *draslices.Result) error {
	p.offers.set(result.Entries)
	digest, err := digestOf(result.Resources)
	if err != nil {
		return err
	}
	p.mu.Lock()
	publish, isPublished := p.publish, p.published == digest
	p.mu.Unlock()
	if publish == nil || isPublished {
		return nil
	}
	klog.FromContext(ctx).V(2).Info("Publishing ResourceSlices", "pools", len(result.Resources.Pools), "devices",
		len(result.Entries))
	if err := publish(ctx, result.Resources); err != nil {
		return err
	}
	// Record the digest only after success, so that after an error, the next computation publishes again even if
	// nothing has changed.
	p.Metrics.changes.Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.published = digest
	return nil
}

// Offered returns the published devices, sorted by pool and name.
func (p *Publisher) Offered() []draslices.Entry { return p.offers.list() }

// Readiness returns the reason why the devices are still unknown, or nil if they are known.
func (p *Publisher) Readiness() error { return p.offers.readiness() }

// Resolve returns the record of an allocated device, for use in the record of its claim.
func (p *Publisher) Resolve(
	result *resourceapi.DeviceRequestAllocationResult,
) (claims.HeldDevice, cnichain.Device, error) {
	entry, err := p.offers.find(result)
	if err != nil {
		return claims.HeldDevice{}, cnichain.Device{}, err
	}
	held, device := claimedDevice(&entry, result)
	return held, device, nil
}
