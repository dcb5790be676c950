package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// The gate guarantees that a container that names a claim starts only in a network namespace that meets three
// conditions: the runtime reports it on the current connection, the kernel confirms that it is the pinned namespace,
// and the claim is attached to it.

// admits returns the sandboxes where a claim's containers may start, according to the file that the OCI hook reads.
func (f *fixture) admits(claim string) string {
	f.Helper()
	pins, err := f.gate.Namespaces(claim)
	f.must(err)
	for i, pin := range pins {
		pins[i] = attempts.ReplaceAllString(filepath.Base(pin), "$1")
	}
	return strings.Join(pins, " ")
}

// container returns a running container that names claims, as the runtime describes it.
func (f *fixture) container(sandbox string, claims ...string) *api.Container {
	container := &api.Container{Id: sandbox + "/c", Name: "c", PodSandboxId: sandbox,
		State: api.ContainerState_CONTAINER_RUNNING, Hooks: &api.Hooks{}}
	for _, claim := range claims {
		container.CDIDevices = append(container.CDIDevices,
			&api.CDIDevice{Name: f.gate.DeviceID(attach.Part{ClaimUID: claim})})
		container.Hooks.CreateRuntime = append(container.Hooks.CreateRuntime, &api.Hook{Args: []string{
			nodeapi.HelperName, nodeapi.GateHookCommand, filepath.Join(f.cdiDir(), nodeapi.GateName(claim))}})
	}
	return f.runtime.Report(container)
}

// If a sandbox was replaced while the driver was down, no container starts based on the old sandbox's interfaces.
func TestGateDoesNotOutliveItsSandbox(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.crash()
	f.ends("a-0")
	f.startAlone("boot-1")
	f.expect(attachedA) // closed until the runtime connects
	f.connect()         // the runtime does not list the sandbox
	f.expect(attachedA)
}

func TestGatesAreClosedWhileNotConnected(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.nri.setConnected(false)
	f.expect(attachedA)
	f.must(f.boxes.SyncGate("claim-a"))
	f.expect(attachedA) // new sandboxes would not be reported
	f.connect()
	f.expect(attachedA, "claim-a")
}

// The network namespace that the runtime lists must be the pinned namespace.
func TestGateOfAnotherNamespace(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.crash()
	f.ends("a-0")
	f.runtime.AddAt(sandboxOf("a-0"), "/var/run/netns/cni-other")
	f.node.AddNamespace("/var/run/netns/cni-other")
	f.start("boot-1")
	f.eventually("the sandbox is attached in its namespace", func() bool {
		f.clock.Step(attach.Retry)
		return f.ready("a-0") && f.admits("claim-a") == "dra-a-0"
	})
	wanted, err := f.node.NamespaceID("/var/run/netns/cni-other")
	f.must(err)
	if id, err := f.node.NamespaceID(f.boxes.States()[0].Pin); err != nil || id != wanted {
		t.Errorf("attached to namespace %v, error %v", id, err)
	}
}

// Prepare fails for a known claim while the driver has no connection over which the claim's sandbox would be reported.
func TestPrepareOfAKnownClaimWhileNotConnected(t *testing.T) {
	f := newFixture(t)
	claim := allocatedClaim("c", "up0", "a")
	prepare := func() error {
		results, err := f.dra.PrepareResourceClaims(context.Background(), []*resourceapi.ResourceClaim{claim})
		f.must(err)
		return results["c"].Err
	}
	f.must(prepare())
	f.nri.setConnected(false)
	if err := prepare(); err == nil || !strings.Contains(err.Error(), "not connected to the container runtime") {
		t.Errorf("error = %v, want an error about the missing connection to the runtime", err)
	}
	f.connect()
	f.must(prepare())
}

// If a claim is released while its files are being repaired, the repair does not prepare it again: the kubelet would
// never release it.
func TestRepairOfAReleasedClaim(t *testing.T) {
	f := newFixture(t)
	claim := allocatedClaim("c", "up0", "a")
	prepare := func() error {
		results, err := f.dra.PrepareResourceClaims(context.Background(), []*resourceapi.ResourceClaim{claim})
		f.must(err)
		return results["c"].Err
	}
	f.must(prepare())
	f.dra.repairing.Store("c", true)
	f.must(prepare())
	f.must(f.dra.release(context.Background(), "c"))
	if err := prepare(); err == nil || !strings.Contains(err.Error(), "was released before") {
		t.Errorf("error = %v, want an error about the release", err)
	}
	if _, held := f.dra.Claims.Get("c"); held {
		t.Error("the repair prepared the released claim again")
	}
	f.dra.repairing.Delete("c")
	f.must(prepare())
}

// If a pod's sandbox was replaced while the driver was down or not connected, the interfaces are attached to the new
// sandbox.
func TestReplacedSandboxIsAttached(t *testing.T) {
	for name, away := range map[string]func(f *fixture, replace func()){
		"driver away":   func(f *fixture, replace func()) { f.crash(); replace(); f.start("boot-1") },
		"not connected": func(f *fixture, replace func()) { f.nri.setConnected(false); replace(); f.connect() },
		"not connected, listed before it had ended": func(f *fixture, replace func()) {
			f.nri.setConnected(false)
			replace()
			f.runtime.AddAt(sandboxOf("a-0"), f.runtime.NamespacePrefix+"a-0") // still listed; no longer exists
			f.connect()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
			away(f, func() { f.ends("a-0"); f.runs("a-1") })
			f.eventually("the new sandbox is attached", func() bool {
				f.clock.Step(attach.Retry)
				return f.ready("a-1") && f.admits("claim-a") == "dra-a-1"
			})
			f.eventually("the old one is undone", func() bool { return !f.boxes.Knows("a-0") })
			f.expect("host [up1] pods [dra-a-1[net1]] leases [a-1/net1]", "claim-a")
		})
	}
}

// After a restart, an attached pod is recognized immediately, even while its claims are unknown because the API server
// has not responded yet: the driver does not try to attach the pod again and logs nothing.
func TestAttachedPodIsNotTriedAgain(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	record.Consumers[0].Claims = nil // as in a record from an earlier driver
	f.must(f.claims.Hold(record, asItIs))
	f.must(f.attach("a-0", record))
	f.prepared("claim-b", "b", "up1") // pod a might name this claim as well
	pod := &api.PodSandbox{Id: "a-0", Uid: "a", Name: "a", Namespace: "ns"}
	if _, err := f.nri.claimsOf(pod); err == nil {
		t.Fatal("claimsOf succeeds before the claims of the pod are known")
	}
	f.boxes.ExpectUnsynced(map[string]bool{"a-0": true})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		f.nri.attachLate(pod, true)
	}()
	f.eventually("the driver does not attach the pod", func() bool {
		select {
		case <-finished:
			return true
		default:
			return false
		}
	})
}

// If no running container names the claim, the pod is attached late: containers that do not name the claim are given no
// guarantee, and the gate or the hook has held back all other containers.
func TestSidecarsDoNotKeepAPodFromBeingAttached(t *testing.T) {
	for name, container := range map[string]func(f *fixture) *api.Container{
		"sidecar": func(f *fixture) *api.Container { return f.container("a-0") },
		"created, not running": func(f *fixture) *api.Container {
			container := f.container("a-0", "claim-a")
			container.State = api.ContainerState_CONTAINER_CREATED
			return container
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.prepared("claim-a", "a", "up0")
			f.nri.setConnected(false)
			f.runs("a-0")
			f.connect(container(f))
			f.eventually("the pod is attached", func() bool { return f.ready("a-0") })
			f.expect(attachedA, "claim-a")
		})
	}
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	f.nri.setConnected(false)
	f.runs("a-0")
	f.connect(f.container("a-0", "claim-a"))
	f.eventually("the pod is told", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.failed) == 1 })
	f.expect("host [up0 up1] pods [] leases []")
}

// While the API server is unavailable, containers of pods without claims still start, even in namespaces with claims
// that several pods may share.
func TestContainersOfUnknownPodsThatRanBefore(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	f.nri.setConnected(false)
	f.runs("z-0")
	f.runs("y-0")
	f.connect(f.container("z-0"))
	create := func(sandbox string, container *api.Container) error {
		_, _, err := f.nri.CreateContainer(context.Background(), f.sandbox(sandbox), container)
		return err
	}
	if err := create("z-0", f.container("z-0")); err != nil {
		t.Errorf("cannot create a container of a pod that ran before: %v", err)
	}
	if err := create("z-0", f.container("z-0", "claim-a")); err == nil {
		t.Error("a container that names an unattached claim can start")
	}
	if err := create("y-0", f.container("y-0")); err == nil || !strings.Contains(err.Error(), "has not reported") {
		t.Errorf("error for a container of an undecided pod = %v, want \"has not reported\"", err)
	}
	// The runtime does not list containers whose creation was rejected.
	f.runs("a-0")
	f.nri.runtime.begin(sets.New("a-0"), nil)
	if err := create("a-0", f.container("a-0")); err == nil {
		t.Error("a sidecar can start before its pod is attached")
	}
}

// A pod with running containers that name the claim is not touched, and neither are its new containers.
func TestContainersOfPodsThatAreLeftAlone(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	f.nri.setConnected(false)
	f.runs("a-0")
	f.nri.runtime.begin(sets.New("a-0"), map[string]bool{"a-0": true})
	if _, _, err := f.nri.CreateContainer(context.Background(), f.sandbox("a-0"), f.container("a-0")); err != nil {
		t.Errorf("cannot create a sidecar of a pod that the driver ignores: %v", err)
	}
}

// A claim that the scheduler created for extended resources does not appear in the spec of any pod.
func TestPodWithExtendedResources(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	f.prepared("claim-b", "b", "up1")
	pod := podObject("a")
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "claim-a"}
	f.must(f.nri.Cluster.pods.GetIndexer().Add(pod))
	for _, known := range []bool{true, false} { // the cache may be older than the scheduler's write
		if !known {
			pod.Status.ExtendedResourceClaimStatus = nil
		}
		records, err := f.nri.claimsOf(&api.PodSandbox{Id: "a-0", Uid: "a", Name: "a", Namespace: "ns"})
		if err != nil || len(records) != 1 || records[0].Claim != record.Claim {
			t.Errorf("status known: %t: got claims %v, error %v", known, records, err)
		}
	}
	claim := allocatedClaim("c", "up0", "a")
	claim.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
	if shareable(claim) {
		t.Error("the claim of a pod's extended resources is shareable")
	}
}

// A claim created by a user may have a pod as its controller.
func TestClaimWithAPodAsControllerIsShareable(t *testing.T) {
	claim := allocatedClaim("c", "up0", "operator-0")
	claim.Annotations = nil
	if !shareable(claim) {
		t.Error("a user's claim is treated as generated for a pod")
	}
	claim = allocatedClaim("c", "up0", "a")
	claim.Status.ReservedFor[0].UID = "b"
	if !shareable(claim) {
		t.Error("a claim that another pod uses is treated as generated for its owner")
	}
}

// A claim keeps its UID when it is deallocated and allocated again.
func TestPrepareOfAnotherAllocation(t *testing.T) {
	f := newFixture(t)
	claim := allocatedClaim("c", "up0", "a")
	prepare := func(claim *resourceapi.ResourceClaim) string {
		t.Helper()
		results, err := f.dra.PrepareResourceClaims(context.Background(), []*resourceapi.ResourceClaim{claim})
		f.must(errors.Join(err, results["c"].Err))
		return results["c"].Devices[0].DeviceName
	}
	if got := prepare(claim); got != "up0" {
		t.Errorf("got device %s, want up0", got)
	}
	record, _ := f.claims.Get("c")
	f.must(f.attach("a-0", record))
	f.crash()
	f.ends("a-0")
	f.start("boot-1")
	if got := prepare(allocatedClaim("c", "up1", "b")); got != "up1" {
		t.Errorf("the new allocation got device %s, want up1", got)
	}
	f.expect("host [up0 up1] pods [] leases []")
	if record, _ := f.claims.Get("c"); record.Devices[0].Name != "up1" || record.Consumers[0].PodUID != "b" {
		t.Errorf("record = %+v, want device up1 and pod b", record)
	}
}

// A claim without anything to attach may belong to a pod in the host's network namespace.
func TestAdministrativeAccessOnTheHostNetwork(t *testing.T) {
	f := newFixture(t)
	pod := podObject("a", "c")
	pod.Spec.HostNetwork = true
	f.must(f.nri.Cluster.pods.GetIndexer().Add(pod))
	for _, admin := range []bool{true, false} {
		claim := allocatedClaim("c", "up0", "a")
		claim.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(admin)
		results, err := f.dra.PrepareResourceClaims(context.Background(), []*resourceapi.ResourceClaim{claim})
		f.must(err)
		if refused := results["c"].Err != nil; refused == admin {
			t.Errorf("administrative access: %t: error = %v", admin, results["c"].Err)
		}
		if admin {
			f.must(f.nri.RunPodSandbox(context.Background(),
				&api.PodSandbox{Id: "a-0", Uid: "a", Name: "a", Namespace: "ns"}))
			f.must(f.dra.unprepare(context.Background(), "c"))
		}
	}
}

// Even after the journal has been lost, the containers of running pods can be restarted until the kubelet releases the
// claim. This also works if the driver was stopped beforehand and closed the gates.
func TestLostJournalKeepsGatesOfRunningPods(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprintf("stopped %t", stopped), func(t *testing.T) { lostJournal(t, stopped) })
	}
}

// If a pod has two claims, both gates list the single pin of the pod's sandbox, and both gates stay open.
func TestLostJournalKeepsAllGatesOfAPod(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0"), f.prepared("claim-b", "a", "up1")))
	f.crash()
	f.must(os.Remove(filepath.Join(f.dir, "journal.db")))
	f.start("boot-1")
	for _, claim := range []string{"claim-a", "claim-b"} {
		if got := f.admits(claim); got != "dra-a-0" {
			t.Errorf("the gate of %s admits %q, want dra-a-0", claim, got)
		}
	}
}

func lostJournal(t *testing.T, stopped bool) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	if stopped {
		f.nri.setConnected(false)
		f.expect(attachedA)
	}
	f.crash()
	f.must(os.Remove(filepath.Join(f.dir, "journal.db")))
	f.start("boot-1")
	if got := f.admits("claim-a"); got != "dra-a-0" {
		t.Fatalf("the gate admits %q, want dra-a-0", got)
	}
	create := func(sandbox string) error {
		_, _, err := f.nri.CreateContainer(context.Background(), f.sandbox(sandbox), f.container(sandbox, "claim-a"))
		return err
	}
	f.must(create("a-0"))
	f.runs("b-0")
	if err := create("b-0"); err == nil {
		t.Error("a container can start in a sandbox without its claim")
	}
	sweeper := f.sweeper()
	sweeper.IsNamed = func(string) bool { return true }
	for range 3 {
		f.must(sweeper.Sweep())
	}
	f.expect(attachedA, "claim-a")
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	// The fake kernel does not return links to the host, and only the plugin could release the leases.
	f.expect("host [up1] pods [] leases [a-0/net1]")
}

// If an interface disappears from a pod, the driver reports this once. It also reports once that the interface is back.
func TestVanishedInterfaceIsTold(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	sweeper := f.sweeper()
	f.must(sweeper.Sweep())
	if len(f.lost) > 0 {
		t.Fatalf("got lost interfaces %q, want none", f.lost)
	}
	pin := f.boxes.States()[0].Pin
	f.node.DeletePodLink(pin, "net1")
	for range 3 {
		f.must(sweeper.Sweep())
	}
	if len(f.lost) != 1 || !strings.Contains(f.lost[0], "interface net1 is no longer in the pod") {
		t.Errorf("got lost interfaces %q, want net1", f.lost)
	}
	record, _ := f.claims.Get("claim-a")
	if name := f.boxes.MissingInterface("claim-a", &record.Devices[0]); name != "net1" {
		t.Errorf("missing interface = %q, want net1", name)
	}
	states := f.boxes.States()
	if len(states) != 1 || len(states[0].Interfaces) != 1 || states[0].Interfaces[0].Missing != "net1" {
		t.Errorf("states = %+v, want net1 as missing", states)
	}
	if f.boxes.MayBeInPod("claim-a", &record.Devices[0]) {
		t.Error("MayBeInPod reports that a missing device is in the pod")
	}
	if gone := f.claims.All().GoneDevices(map[string]bool{"up1": true}, f.boxes.MayBeInPod); !gone["up0"] {
		t.Errorf("gone devices = %v, want up0", gone)
	}
	f.node.RenamePodLink(pin, "eth0", "mgmt") // an interface that the application renames is not missing
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
}

// Prepare waits for releases in progress, in order of arrival, and for nothing else.
func TestPrepareWaitsForARelease(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	release := f.node.Hold("host-device DEL")
	defer release()
	released := make(chan error, 1)
	go func() { released <- f.dra.unprepare(context.Background(), "claim-a") }()
	f.eventually("DEL runs",
		func() bool { return strings.Contains(strings.Join(f.node.Calls(), ","), "host-device DEL") })
	order := make(chan string, 2)
	for i, name := range []string{"b", "c"} {
		go func() {
			results, err := f.dra.PrepareResourceClaims(context.Background(),
				[]*resourceapi.ResourceClaim{allocatedClaim(name, "up0", name)})
			f.must(err)
			if results["b"].Err == nil && name == "b" {
				order <- name
			} else if err := results["c"].Err; name == "c" {
				order <- name + ": " + err.Error()
			}
		}()
		f.eventually("it waits", func() bool { return f.claims.CountWaiting() == i+1 })
	}
	f.clock.Step(claims.NoticeWait + time.Millisecond) // the release continues, and so does the wait
	release()
	f.must(<-released)
	if first := <-order; first != "b" {
		t.Errorf("the first result is %q, want b", first)
	}
	f.eventually("the claim gets its device", func() bool { f.clock.Step(claims.ReleaseWait); return len(order) == 1 })
	if second := <-order; !strings.Contains(second, "claim ns/b holds up0") {
		t.Errorf("the second result is %q, want an error about the holder ns/b", second)
	}
}

// The kubelet releases the claims of force-deleted pods only after some time. Other claims that were allocated the same
// devices do not wait for this. A pod that still exists never loses its devices.
func TestClaimsOfPodsThatAreGoneAreEvicted(t *testing.T) {
	f := newFixture(t)
	pods := informers.NewSharedInformerFactory(fake.NewClientset(podObject("a", "claim-a")),
		0).Core().V1().Pods().Informer()
	go pods.RunWithContext(t.Context())
	f.eventually("the cache is filled", pods.HasSynced)
	f.dra.Cluster.pods = pods
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	ended := make(chan error, 1)
	go func() {
		results, err := f.dra.PrepareResourceClaims(context.Background(),
			[]*resourceapi.ResourceClaim{allocatedClaim("b", "up0", "b")})
		ended <- errors.Join(err, results["b"].Err)
	}()
	f.eventually("it waits", func() bool { return f.claims.CountWaiting() == 1 })
	f.claims.Wake()
	f.expect(attachedA, "claim-a")
	f.must(pods.GetStore().Delete(podObject("a")))
	f.claims.Wake()
	f.must(<-ended)
	f.expect(clean)
	if _, held := f.claims.Get("claim-a"); held {
		t.Error("the claim of a deleted pod is still held")
	}
}

// A failed eviction is retried while a claim is waiting for the devices.
func TestEvictionIsTriedAgain(t *testing.T) {
	f := newFixture(t)
	pods := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Pods().Informer()
	go pods.RunWithContext(t.Context())
	f.eventually("the cache is filled", pods.HasSynced)
	f.dra.Cluster.pods = pods
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0"))) // its pod no longer exists
	f.node.Fail("host-device DEL", errors.New("busy"))
	ended := make(chan error, 1)
	go func() {
		results, err := f.dra.PrepareResourceClaims(context.Background(),
			[]*resourceapi.ResourceClaim{allocatedClaim("b", "up0", "b")})
		ended <- errors.Join(err, results["b"].Err)
	}()
	for attempts := range 2 {
		f.eventually("an eviction has failed", func() bool {
			_, evicting := f.dra.evicting.Load("claim-a")
			return strings.Count(strings.Join(f.node.Calls(), ","), "host-device DEL") == attempts+1 && !evicting
		})
		if attempts == 1 {
			f.node.Fail("host-device DEL", nil)
		}
		f.clock.Step(claims.NoticeWait + time.Millisecond)
	}
	f.eventually("the device is given", func() bool { return len(ended) == 1 })
	f.must(<-ended)
	f.expect(clean)
}

// A waiting pod does not prevent the release of an earlier claim with the same name as its own claim: if the kubelet
// has forgotten the earlier claim, no other component releases it. If the waiting claim has a different name, a pod
// that names the earlier claim prevents the release.
func TestEarlierClaimOfTheSameNameIsEvicted(t *testing.T) {
	f := newFixture(t)
	pods := informers.NewSharedInformerFactory(fake.NewClientset(podObject("b", "c")), 0).Core().V1().Pods().Informer()
	go pods.RunWithContext(t.Context())
	f.eventually("the cache is filled", pods.HasSynced)
	f.dra.Cluster.pods = pods
	record := f.prepared("c", "a", "up0") // for pod a, which no longer exists
	f.must(f.attach("a-0", record))
	if rivals := f.dra.rivalsOf(cnichain.Claim{Namespace: "ns", Name: "d",
		UID: "d"}); rivals.IsLeaving(&record) {
		t.Error("a claim that a pod names is treated as leaving")
	} else if rivals.Evict(&record); f.boxes.IsReleasing("c") {
		t.Error("a claim that a pod names was evicted")
	}
	f.expect(attachedA, "c")
	claim := allocatedClaim("c", "up0", "b")
	claim.UID = "c-again"
	results, err := f.dra.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim})
	f.must(errors.Join(err, results["c-again"].Err))
	f.expect(clean)
	if _, held := f.claims.Get("c"); held {
		t.Error("the earlier claim is still held")
	}
}

// A dead sandbox that the runtime still lists never replaces the live sandbox of its pod, even after the connection has
// ended and all confirmations are invalid.
func TestDeadSandboxDoesNotSupersedeTheLiveOne(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-1", f.prepared("claim-a", "a", "up0")))
	dead := f.sandbox("a-1")
	dead.Id = "a-0"
	dead.Linux.Namespaces[1].Path = f.runtime.NamespacePrefix + "a-0" // as reported by containerd's main branch
	connection := &nriConnection{nriPlugin: f.nri, configured: func() {}}
	_, err := connection.Synchronize(context.Background(), []*api.PodSandbox{dead, f.sandbox("a-1")},
		[]*api.Container{f.container("a-1", "claim-a")})
	f.must(err)
	const attached = "host [up1] pods [dra-a-1[net1]] leases [a-1/net1]"
	f.expect(attached, "claim-a")
	f.nri.setConnected(false)
	f.boxes.ExpectAlso("a-0") // its namespace existed when the runtime listed it
	if err := f.boxes.AttachAfterResync("a-0", podNamed("a-0"), f.runtime.NamespacePrefix+"a-0",
		f.claims.OfPod("a")); err == nil || !strings.Contains(err.Error(), "not connected") {
		t.Errorf("error = %v, want \"not connected\"", err)
	}
	f.connect()
	f.expect(attached, "claim-a")
}

// Lists from a connection become invalid when the connection ends.
func TestLateSynchronize(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	connection := &nriConnection{nriPlugin: f.nri, configured: func() {}}
	connection.end()
	f.nri.setConnected(false)
	if _, err := connection.Synchronize(context.Background(), []*api.PodSandbox{f.sandbox("a-0")}, nil); err == nil {
		t.Error("Synchronize accepts reports from a closed connection")
	}
	f.expect(attachedA)
}

// Releasing a claim while the driver is not connected leaves no gate file, not even a suspended one.
func TestReleaseWhileNotConnectedLeavesNoGate(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.nri.setConnected(false)
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	if entries, err := os.ReadDir(f.cdiDir()); err != nil || len(entries) > 0 {
		t.Errorf("remaining files: %v, error: %v", entries, err)
	}
	f.expect(clean)
}

// A runtime that is killed while stopping a sandbox lists the sandbox and its namespace after the restart, but might
// never report that the sandbox was stopped. No container will start in the sandbox, so it is not attached again.
func TestStoppedSandboxIsNotAttachedAgain(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.must(f.nri.StopPodSandbox(t.Context(), f.sandbox("a-0")))
	f.eventually("the sandbox is undone", func() bool { return !f.boxes.Knows("a-0") })
	for range 2 { // the second connection finds the state that the first one left
		f.nri.setConnected(false)
		f.connect()
		if f.boxes.IsUnsynced("a-0") || f.boxes.Knows("a-0") {
			t.Fatal("the sandbox was attached again")
		}
	}
	f.expect(clean)
	f.must(f.nri.RemovePodSandbox(t.Context(), f.sandbox("a-0")))
}
