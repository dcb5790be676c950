package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// The number of nodes and the number of random claims on each node. Each node fills up independently of the others.
const (
	simulatedNodes = 8
	claimsOfANode  = 26
	siteAttribute  = "site" // identifies the test node that a device belongs to
	freedOneIn     = 2      // for one in this many rejections, the blocking claims are released
	refusedAtLeast = 40     // percent
	refusedAtMost  = 60
	provenAtLeast  = 20
	endedOneIn     = 4 // before one in this many new pods, a pod is deleted, so that some claims fit
)

// simulation counts the results in a test.
type simulation struct {
	mu                      sync.Mutex
	fitted, refused, proven int
}

func (s *simulation) add(count *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*count++
}

// TestSimulateAgreesWithTheScheduler passes random claims to `netdra simulate` and then to the scheduler. It releases
// the claims that are reported to be blocking a claim. After that, the scheduler must accept the pod that it previously
// rejected.
func TestSimulateAgreesWithTheScheduler(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: starts a Kubernetes control plane in private namespaces")
	}
	p, err := planeOf(versions[0])
	if err != nil {
		t.Fatalf("cannot start a control plane: %v", err)
	}
	machines := exclusionMachines()[0]
	recording := record(t, machine(2, machines.functions))
	var seen simulation
	t.Run("nodes", func(t *testing.T) {
		for i := range simulatedNodes {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				policies := machines.policies(t)
				site := fmt.Sprintf("site-%d", i)
				for j := range policies {
					policies[j].Spec.Exposure.AdditionalAttributes = map[string]v1alpha1.AttributeValue{
						"dra.networking/" + siteAttribute: {String: &site},
					}
				}
				n := p.publish(t, "simulated", recording, policies)
				n.offers(t, 2*machines.entries())
				random := rand.New(rand.NewPCG(uint64(i), 1)) //nolint:gosec // it must be repeatable
				n.simulated(t, random, site, &seen)
			})
		}
	})
	tried := seen.fitted + seen.refused
	share := 100 * seen.refused / max(tried, 1)
	t.Logf("%d claims: %d fitted, %d (%d %%) were rejected; named obstacles were released %d times", tried,
		seen.fitted, seen.refused, share, seen.proven)
	if !t.Failed() && (tried < 200 || share < refusedAtLeast || share > refusedAtMost || seen.proven < provenAtLeast) {
		t.Error("the counts of fitted, rejected or released claims are outside the limits")
	}
}

// simulated tries random claims on a node, one after the other.
func (n node) simulated(t *testing.T, random *rand.Rand, site string, seen *simulation) {
	t.Helper()
	var using []string // pods
	for i := range claimsOfANode {
		if len(using) > 0 && random.IntN(endedOneIn) == 0 {
			ended := random.IntN(len(using))
			if err := n.ended(t.Context(), using[ended]); err != nil {
				t.Fatal(err)
			}
			using = slices.Delete(using, ended, ended+1)
		}
		spec := randomClaim(random, site)
		said, err := n.simulate(t, spec)
		if err != nil {
			t.Fatalf("claim %d: %v", i, err)
		}
		pod, err := n.pod(t.Context(), fmt.Sprint("p", i), false, spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.outcome(t.Context(), pod, said.Fits); err != nil {
			t.Fatalf("claim %d: simulate said fits=%v, kube-scheduler: %v\n%+v\n%+v", i, said.Fits, err, said,
				spec.Devices)
		}
		if said.Fits {
			seen.add(&seen.fitted)
			using = append(using, pod)
			continue
		}
		seen.add(&seen.refused)
		inTheWay := said.inTheWay(n.name)
		if len(inTheWay) == 0 || random.IntN(freedOneIn) != 0 {
			if err := n.ended(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, claim := range inTheWay {
			holder := strings.TrimSuffix(claim, "-0")
			if !slices.Contains(using, holder) {
				t.Fatalf("the rejection names claim %s, which no running pod uses: %v", claim, using)
			}
			if err := n.release(t.Context(), holder); err != nil {
				t.Fatal(err)
			}
			using = slices.DeleteFunc(using, func(pod string) bool { return pod == holder })
		}
		if _, err := n.allocated(t.Context(), pod); err != nil {
			t.Fatalf("claim %d was not allocated after obstacles %v had been released: %v", i, inTheWay, err)
		}
		using = append(using, pod)
		seen.add(&seen.proven)
	}
}

// ended deletes a pod and waits until its claim has been released.
func (n node) ended(ctx context.Context, pod string) error {
	if err := n.release(ctx, pod); err != nil {
		return err
	}
	err := n.until(ctx, "the claim of pod "+pod+" is free", func() error {
		claim, err := n.claims.Get(pod + "-0")
		if err == nil && (claim.Status.Allocation != nil || len(claim.Status.ReservedFor) > 0) {
			err = errors.New("it is allocated")
		}
		return err
	})
	if err != nil {
		return err
	}
	return n.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Delete(ctx, pod+"-0", metav1.DeleteOptions{})
}

// said is the output of `netdra simulate -o json` for a claim.
type said struct {
	Fits     bool     `json:"fits"`
	Nodes    []string `json:"nodes"`
	Refusals []struct {
		Node    string   `json:"node"`
		Reason  string   `json:"reason"`
		Release []string `json:"release"`
	} `json:"refusals"`
}

// inTheWay returns the names of the claims that block the claim on a node.
func (s said) inTheWay(node string) []string {
	var names []string
	for _, refusal := range s.Refusals {
		if refusal.Node == node {
			for _, claim := range refusal.Release {
				names = append(names, strings.TrimPrefix(claim, metav1.NamespaceDefault+"/"))
			}
		}
	}
	return names
}

// simulate runs netdra for a claim that does not exist yet, as a user would.
func (n node) simulate(t *testing.T, spec resourceapi.ResourceClaimSpec) (said, error) {
	t.Helper()
	text, err := yaml.Marshal(resourceapi.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "asked"}, Spec: spec,
	})
	if err != nil {
		return said{}, err
	}
	cmd := n.Command(t.Context(), filepath.Join(filepath.Dir(n.driver), "netdra"), "simulate", "--cluster", "-o",
		"json", "-f", "-")
	var out, problems strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(string(text)), &out, &problems
	err = n.Run(cmd)
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() > 1 { // 1 is the exit status for claims that do not fit
		return said{}, fmt.Errorf("%w: %s", err, problems.String())
	}
	var all []said
	if err := json.Unmarshal([]byte(out.String()), &all); err != nil || len(all) != 1 {
		return said{}, fmt.Errorf("%w: netdra printed %s", err, out.String())
	}
	return all[0], nil
}

// randomClaim returns a claim with one or two requests for devices on a site's node.
func randomClaim(random *rand.Rand, site string) resourceapi.ResourceClaimSpec {
	var spec resourceapi.ResourceClaimSpec
	here := fmt.Sprintf(`device.attributes["dra.networking"].?%s.orValue("") == %q`, siteAttribute, site)
	for i := range 1 + random.IntN(2) {
		exactly := &resourceapi.ExactDeviceRequest{
			DeviceClassName: []string{"sriov", "sriov", "macvlan", "macvlan", "ipvlan", "host-device"}[random.IntN(6)],
			Selectors:       []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: here}}},
		}
		switch exactly.DeviceClassName {
		case "sriov":
			exactly.Count = 1 + random.Int64N(3)
		case "macvlan":
			exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
				"dra.networking/macvlans": *resource.NewQuantity(1+random.Int64N(5), resource.DecimalSI),
			}}
		}
		spec.Devices.Requests = append(spec.Devices.Requests,
			resourceapi.DeviceRequest{Name: fmt.Sprintf("r%d", i), Exactly: exactly})
	}
	if random.IntN(4) == 0 {
		sameCard := resourceapi.FullyQualifiedName("dra.networking/pfName")
		spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &sameCard}}
	}
	return spec
}
