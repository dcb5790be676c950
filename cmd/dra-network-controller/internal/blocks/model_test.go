package blocks

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const (
	modelPods  = 1000
	modelDelay = 10 * time.Minute
)

// lagging is a client that reads an earlier state of the API server but writes to the current one.
type lagging struct {
	client.Client
	blocks     v1alpha1.AddressBlockList
	ranges     v1alpha1.AddressRangeList
	topologies v1alpha1.NetworkTopologyList
	nodes      metav1.PartialObjectMetadataList
}

// catchUp updates the cache for the given kinds. Each kind has its own watch.
func (l *lagging) catchUp(ctx context.Context, kinds ...client.ObjectList) error {
	for _, kind := range kinds {
		if err := l.Client.List(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}

func (l *lagging) kinds() []client.ObjectList {
	l.nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	return []client.ObjectList{&l.blocks, &l.ranges, &l.topologies, &l.nodes}
}

func (l *lagging) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.AddressBlockList:
		l.blocks.DeepCopyInto(list)
	case *v1alpha1.AddressRangeList:
		l.ranges.DeepCopyInto(list)
	case *v1alpha1.NetworkTopologyList:
		l.topologies.DeepCopyInto(list)
	case *metav1.PartialObjectMetadataList:
		l.nodes.DeepCopyInto(list)
	default:
		return fmt.Errorf("not in this cache: %T", list)
	}
	return nil
}

// machine is a computer with a kubelet, a driver and an IPAM plugin, all of which act on the last state that they
// received.
type machine struct {
	node   *corev1.Node // the last version that its driver received
	blocks []v1alpha1.AddressBlock
	// leases maps the claim of each running pod to the pod's address.
	leases map[string]lease
	// gone is when the Node object was deleted. The machine is powered off before the range's return delay has passed.
	gone time.Time
}

type lease struct {
	block   string
	address netip.Addr
}

// world is a cluster with two controllers that may be active at the same time.
type world struct {
	*cluster
	random      *rand.Rand
	controllers []*Reconciler
	caches      []*lagging
	machines    []*machine // the running machines
	claims      map[string]*resourceapi.ResourceClaim
	pods        int
	refused     int // number of pods that got no address
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{cluster: newCluster(t, `{cidrs: [10.0.0.0/23], blockSize: 8, exclude: [10.0.0.33], returnDelay: 10m}`),
		random: rand.New(rand.NewPCG(seed, 0)), claims: map[string]*resourceapi.ResourceClaim{}}
	for range 2 {
		w.caches = append(w.caches, &lagging{})
		w.controllers = append(w.controllers, nil)
		w.restart(len(w.caches) - 1)
	}
	return w
}

// restart restarts a controller, which loses its memory and reads the current state from the API server.
func (w *world) restart(i int) {
	w.caches[i] = &lagging{Client: w.api}
	w.must(w.caches[i].catchUp(w.Context(), w.caches[i].kinds()...))
	start := w.clock.Now()
	wrong := testingclock.NewFakePassiveClock(start.Add(time.Duration(w.random.IntN(20)-10) * time.Hour))
	w.controllers[i] = &Reconciler{Client: w.caches[i], Live: w.api, Events: w.events, Clock: wrong,
		Elapsed: func() time.Duration { return w.clock.Since(start) }}
	for _, claim := range w.claims {
		w.controllers[i].claims().set(claim)
	}
}

func (w *world) work() {
	r := w.controllers[w.random.IntN(len(w.controllers))]
	_, err := r.Reconcile(w.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "r"}})
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
}

// hear updates one kind of object in one controller's cache, or a machine's copy of its blocks or node.
func (w *world) hear() {
	if cache := w.caches[w.random.IntN(len(w.caches))]; w.random.IntN(2) == 0 {
		w.must(cache.catchUp(w.Context(), cache.kinds()[w.random.IntN(4)]))
		return
	}
	if m := w.machine(); m != nil && w.random.IntN(2) == 0 {
		m.blocks = w.list()
	} else if m != nil {
		node := &corev1.Node{}
		if w.api.Get(w.Context(), types.NamespacedName{Name: m.node.Name}, node) == nil && m.gone.IsZero() {
			m.node = node
		}
	}
}

func (w *world) machine() *machine {
	if len(w.machines) == 0 {
		return nil
	}
	return w.machines[w.random.IntN(len(w.machines))]
}

// notify delivers a claim to a random subset of the controllers. The others receive it when they restart.
func (w *world) notify(claim *resourceapi.ResourceClaim, gone bool) {
	for _, r := range w.controllers {
		switch {
		case gone:
			r.claims().forget(claim)
		case w.random.IntN(10) > 0:
			r.claims().set(claim)
		}
	}
}

// register creates the Node object for a new machine or for a machine whose Node object was deleted.
func (w *world) register() {
	name := fmt.Sprintf("n%d", w.random.IntN(12))
	if w.api.Get(w.Context(), types.NamespacedName{Name: name}, &corev1.Node{}) == nil {
		return
	}
	node := w.node(name)
	for _, m := range w.machines {
		if m.node.Name == name && w.random.IntN(2) == 0 { // kubelet was restarted; the pods keep running
			m.gone = time.Time{}
			if w.random.IntN(2) == 0 {
				m.node = node // otherwise, its driver has not received the change yet
			}
			return
		}
	}
	w.machines = append(w.machines, &machine{node: node, leases: map[string]lease{}, blocks: w.list()})
}

// unregister deletes a Node object. The machine and its pods may keep running until the delay has passed.
func (w *world) unregister() {
	m := w.machine()
	if m == nil || !m.gone.IsZero() {
		return
	}
	node := &corev1.Node{}
	if w.api.Get(w.Context(), types.NamespacedName{Name: m.node.Name}, node) == nil {
		w.delete(node)
		m.gone = w.clock.Now()
	}
}

func (w *world) powerOff(m *machine) {
	w.machines = slices.DeleteFunc(w.machines, func(other *machine) bool { return other == m })
	for name := range m.leases {
		w.deleteClaim(name)
	}
}

func (w *world) deleteClaim(name string) {
	if claim := w.claims[name]; claim != nil {
		w.notify(claim, true)
		delete(w.claims, name)
	}
}

// start starts a pod on a machine: the scheduler allocates a claim on the machine's node, and the machine's driver
// assigns an address from its copy of the blocks.
func (w *world) start() {
	m := w.machine()
	if m == nil || !m.gone.IsZero() {
		return // kubelet receives no pods
	}
	name := fmt.Sprintf("pod-%d", w.pods)
	claim := w.claim(name, m.node.Name, 1)
	w.claims[name] = claim
	w.notify(claim, false)
	w.pods++
	given, found := m.assign()
	if !found {
		w.refused++
		w.deleteClaim(name)
		return
	}
	m.leases[name] = given
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: v1alpha1.DriverName,
		NetworkData: &resourceapi.NetworkDeviceData{IPs: []string{given.address.String() + "/23"}}}}
	w.notify(claim, false)
}

// assign acts like the driver and the IPAM plugin: it assigns an address from a block that belongs to the last Node
// object that the machine received.
func (m *machine) assign() (lease, bool) {
	for i := range m.blocks {
		object := &m.blocks[i]
		if object.Spec.NodeName != m.node.Name || object.Spec.NodeUID != m.node.UID || object.Status.ReleasedAt != nil {
			continue
		}
		block, err := addresses.ParseBlock(object)
		if err != nil {
			continue
		}
		for _, run := range block.Families[0].Runs {
			for address := run.First; address.Compare(run.Last) <= 0; address = address.Next() {
				given := lease{block.Name, address}
				if !slices.Contains(slices.Collect(maps.Values(m.leases)), given) {
					return given, true
				}
			}
		}
	}
	return lease{}, false
}

// stop stops a pod. If the machine has a Node object, the pod terminates together with its claim. Otherwise, only the
// claim is deleted, as the garbage collector would do, and the pod keeps running until the machine learns of the
// deletion or is powered off.
func (w *world) stop() {
	m := w.machine()
	if m == nil || len(m.leases) == 0 {
		return
	}
	name := slices.Sorted(maps.Keys(m.leases))[w.random.IntN(len(m.leases))]
	w.deleteClaim(name)
	if m.gone.IsZero() {
		delete(m.leases, name)
	}
}

// wait advances the clock. Machines whose Node object was deleted are powered off before the delay has passed, as
// required by the documentation.
func (w *world) wait() {
	step := time.Duration(w.random.IntN(int(modelDelay / 3)))
	w.clock.Step(step)
	for _, m := range slices.Clone(w.machines) {
		if !m.gone.IsZero() && w.clock.Since(m.gone) >= modelDelay {
			w.powerOff(m)
		}
	}
}

// check verifies that no two pods on running machines have the same address, regardless of the API server's state.
func (w *world) check(step int) {
	holders := map[netip.Addr]string{}
	for _, m := range w.machines {
		for name, lease := range m.leases {
			holder := fmt.Sprintf("%s on %s (%s)", name, m.node.UID, lease.block)
			if other, taken := holders[lease.address]; taken {
				w.Fatalf("step %d: %s and %s both hold %s; blocks are\n%s", step, holder, other, lease.address,
					w.blocks())
			}
			holders[lease.address] = holder
		}
	}
}

// TestPodsNeverShareAnAddress starts 1,000 pods while nodes are added, removed and partitioned, and while two
// controllers with stale caches take turns, fail and restart. Machines also register under the name of an earlier node,
// which may have been the same or another machine.
func TestPodsNeverShareAnAddress(t *testing.T) {
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed)
			returned := 0
			work := func() {
				before := len(w.list())
				w.work()
				returned += max(0, before-len(w.list()))
			}
			actions := []struct {
				weight int
				do     func()
			}{
				{30, w.start}, {22, w.stop}, {20, work}, {25, w.hear}, {4, w.register}, {2, w.unregister},
				{3, w.wait}, {1, func() { w.restart(w.random.IntN(2)) }},
			}
			for step := 0; w.pods < modelPods; step++ {
				left := w.random.IntN(107)
				for i := range actions {
					if left -= actions[i].weight; left < 0 {
						actions[i].do()
						break
					}
				}
				w.check(step)
			}
			t.Logf("%d nodes registered, %d of %d pods refused, %d blocks returned, %d blocks left", w.uids, w.refused,
				w.pods, returned, len(w.list()))
			if returned < 5 || w.refused > w.pods/2 {
				t.Error("the test returned too few blocks or refused too many pods")
			}
		})
	}
}
