package slices_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

var karpenterPath = flag.String("karpenter", "", "program with the allocator of Karpenter, of `make karpenter-check`")

// karpenter is a process that runs Karpenter's allocator, which decides which nodes to start.
type karpenter struct {
	questions *json.Encoder
	answers   *json.Decoder
}

// karpenterQuestion and karpenterAnswer are the messages exchanged with e2e/karpenter.
type (
	karpenterQuestion struct {
		Node    string                         `json:"node"`
		Slices  []*resourceapi.ResourceSlice   `json:"slices"`
		Held    []resourceapi.AllocationResult `json:"held"`
		Classes []*resourceapi.DeviceClass     `json:"classes"`
		Claims  []*resourceapi.ResourceClaim   `json:"claims"`
	}
	karpenterAnswer struct {
		Devices []string `json:"devices"`
		Refused string   `json:"refused"`
	}
)

func startKarpenter(t *testing.T) *karpenter {
	t.Helper()
	if *karpenterPath == "" {
		t.Skip("needs the Karpenter allocator: run make karpenter-check")
	}
	cmd := exec.CommandContext(t.Context(), *karpenterPath)
	cmd.Stderr = os.Stderr
	questions, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = questions.Close() // makes the process exit
		_ = cmd.Wait()
	})
	return &karpenter{questions: json.NewEncoder(questions), answers: json.NewDecoder(answers)}
}

// decide returns Karpenter's decision on whether the claims can be allocated devices on a node, in addition to the
// devices already held. If newNode is true, the node has not been started yet.
func (k *karpenter) decide(
	t *testing.T, s *scheduler, claims []*resourceapi.ResourceClaim, newNode bool,
) karpenterAnswer {
	t.Helper()
	q := karpenterQuestion{Node: "worker-1", Slices: s.slices, Claims: claims}
	if newNode {
		q.Node = ""
	}
	for _, allocation := range s.claims {
		q.Held = append(q.Held, *allocation)
	}
	for _, plugin := range []string{"host-device", "ipvlan", "macvlan", "sriov"} {
		class, err := s.Get(plugin)
		if err != nil {
			t.Fatal(err)
		}
		q.Classes = append(q.Classes, class)
	}
	var a karpenterAnswer
	if err := k.questions.Encode(q); err != nil {
		t.Fatal(err)
	}
	if err := k.answers.Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

// agreement counts the decisions on which Karpenter and kube-scheduler agree or disagree.
type agreement struct {
	both, neither int
	// onlyScheduler and onlyKarpenter count the decisions in which only one of them allocates devices, by cause.
	onlyScheduler, onlyKarpenter map[string]int
}

// These are the causes of disagreement. All of them are properties of Karpenter's allocator.
const (
	// sharedAgain: Karpenter charges the counters of a shared device for every share. kube-scheduler charges them once,
	// with the first share, and releases them with the last one.
	sharedAgain = "another share of a device with counters"
	// severalOfPool: Karpenter skips a pool once a device has used up one of its counters, even though other devices in
	// the pool do not need that counter.
	severalOfPool = "several devices of one pool"
	// capacityAsked: Karpenter ignores a capacity request for an exclusive device.
	capacityAsked = "a request for capacity"
	unexplained   = "unexplained"
)

func newAgreement() *agreement {
	return &agreement{onlyScheduler: map[string]int{}, onlyKarpenter: map[string]int{}}
}

// add counts a decision about claims, given the held devices; results contains kube-scheduler's decisions.
func (a *agreement) add(
	claims []*resourceapi.ResourceClaim, results []resourceapi.AllocationResult, held map[string]bool, karpenter bool,
) {
	switch given := len(results) > 0; {
	case given && karpenter:
		a.both++
	case given:
		a.onlyScheduler[refusalCause(results, held)]++
	case karpenter:
		a.onlyKarpenter[giftCause(claims)]++
	default:
		a.neither++
	}
}

// refusalCause returns the known cause of a disagreement in which Karpenter rejects what kube-scheduler allocates.
func refusalCause(results []resourceapi.AllocationResult, held map[string]bool) string {
	used, pools, cause := maps.Clone(held), map[string]bool{}, unexplained
	for _, result := range results {
		for _, r := range result.Devices.Results {
			if used[r.Device] {
				return sharedAgain
			}
			if pools[r.Pool] {
				cause = severalOfPool
			}
			used[r.Device], pools[r.Pool] = true, true
		}
	}
	return cause
}

// giftCause returns the known cause of a disagreement in which Karpenter allocates what kube-scheduler rejects.
func giftCause(claims []*resourceapi.ResourceClaim) string {
	for _, claim := range claims {
		for _, request := range claim.Spec.Devices.Requests {
			if request.Exactly.Capacity != nil {
				return capacityAsked
			}
		}
	}
	return unexplained
}

func (a *agreement) String() string {
	return fmt.Sprintf("both give %d, both refuse %d, kube-scheduler alone gives %v, Karpenter alone gives %v",
		a.both, a.neither, a.onlyScheduler, a.onlyKarpenter)
}

// TestKarpenterAgrees also lets Karpenter decide on random sequences like those in TestSchedulerAgreesWithPolicies.
// Every difference between the decisions must have one of the known causes.
func TestKarpenterAgrees(t *testing.T) {
	k := startKarpenter(t)
	existing, started := newAgreement(), newAgreement()
	for seed := range uint64(rounds(400)) {
		d := dice{rand.New(rand.NewPCG(seed, 3))}
		m := d.machine()
		result := buildWith(t, features(), m.devices(), m.policies()...)
		for range 5 {
			run := run{t: t, features: features(), machine: m, steps: d.steps(m)}
			run.allocate = func(s *scheduler,
				claims []*resourceapi.ResourceClaim) func([]resourceapi.AllocationResult) error {
				held := s.held()
				onNode := k.decide(t, s, claims, false)
				onNew := onNode
				if len(held) == 0 {
					onNew = k.decide(t, s, claims, true)
				}
				return func(results []resourceapi.AllocationResult) error {
					existing.add(claims, results, held, onNode.Refused == "")
					if len(held) == 0 {
						started.add(claims, results, held, onNew.Refused == "")
					}
					if existing.onlyScheduler[unexplained]+existing.onlyKarpenter[unexplained]+
						started.onlyScheduler[unexplained]+started.onlyKarpenter[unexplained] > 0 {
						return fmt.Errorf("kube-scheduler allocates %v, Karpenter %v, and %v on a new node", results,
							onNode, onNew)
					}
					return nil
				}
			}
			if err := run.apply(result); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, m)
			}
		}
	}
	t.Logf("on a node with claims: %s", existing)
	t.Logf("on a node to be started: %s", started)
	if existing.both < 1000 || existing.neither < 1000 {
		t.Errorf("the allocators only agreed on %d allocations and %d rejections", existing.both, existing.neither)
	}
}

// held returns the names of the devices that are allocated to claims.
func (s *scheduler) held() map[string]bool {
	held := map[string]bool{}
	for _, allocation := range s.claims {
		for _, r := range allocation.Devices.Results {
			held[r.Device] = true
		}
	}
	return held
}
