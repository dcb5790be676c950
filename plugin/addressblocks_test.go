package plugin

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// withRange configures the topology to assign addresses from range r and gives the node the specified blocks of four
// addresses each.
func (f *fixture) withRange(blocks ...*chainapi.AddressBlock) {
	f.Helper()
	topology := testTopology()
	topology.Spec.Steps[0].AddressRange = "r"
	f.must(f.cluster.topologies.GetStore().Add(topology))
	for _, block := range blocks {
		f.must(f.cluster.blocks.GetStore().Add(block))
	}
	f.cluster.blocks = syncedInformer{f.cluster.blocks}
}

// syncedInformer is an informer that always reports itself as synced.
type syncedInformer struct{ cache.SharedIndexInformer }

func (syncedInformer) HasSynced() bool { return true }

// blockOf returns a block of range r that is assigned to node n with the given UID.
func blockOf(index int, nodeUID types.UID) *chainapi.AddressBlock {
	r, _ := addresses.Parse(&chainapi.AddressRangeSpec{CIDRs: []string{"10.20.0.0/16"}, BlockSize: 4})
	spec := r.Spec("r", index)
	spec.NodeName, spec.NodeUID = "n", nodeUID
	return &chainapi.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: addresses.Name("r", int32(index))}, Spec: spec}
}

func TestPrepareUsesBlocksOfTheNode(t *testing.T) {
	released, deleted := blockOf(2, ""), blockOf(3, "")
	released.Status.ReleasedAt, deleted.DeletionTimestamp = &metav1.Time{}, &metav1.Time{}
	elsewhere := blockOf(4, "")
	elsewhere.Spec.NodeName = "m"
	f := newFixture(t)
	f.withRange(blockOf(1, "an earlier node n"), released, deleted, elsewhere)
	_, err := f.dra.prepare(t.Context(), allocatedClaim("a", "up0", "pod-a"))
	if err == nil || !strings.Contains(err.Error(), "node n has no block of AddressRange r yet") {
		t.Fatalf("a block of another node is used, or the error is wrong: %v", err)
	}
	f.must(f.cluster.blocks.GetStore().Add(blockOf(7, "")))
	_, err = f.dra.prepare(t.Context(), allocatedClaim("a", "up0", "pod-a"))
	f.must(err)
	record, _ := f.claims.Get("a")
	if step := record.Plans[0].Steps[0]; step.Range.Block != "r-7" || !strings.Contains(string(step.Config),
		`"rangeStart":"10.20.0.28"`) {
		t.Errorf("the plan contains range %+v and configuration %s, want block r-7", step.Range, step.Config)
	}
}

// A plan keeps its addresses regardless of later changes to the objects in the API server.
func TestPreparedAddressesSurviveTheBlock(t *testing.T) {
	f := newFixture(t)
	f.withRange(blockOf(7, ""))
	_, err := f.dra.prepare(t.Context(), allocatedClaim("a", "up0", "pod-a"))
	f.must(err)
	before, _ := f.claims.Get("a")
	f.crash()
	f.start("boot-1")
	_, err = f.dra.prepare(t.Context(), allocatedClaim("a", "up0", "pod-a"))
	f.must(err)
	if after, known := f.claims.Get("a"); !known || string(after.Plans[0].Steps[0].Config) !=
		string(before.Plans[0].Steps[0].Config) {
		t.Errorf("the plan was %+v, but is %+v after a restart without the API server", before, after)
	}
}

// Each concurrent claim gets an address from a block that still has one, even if another claim has just taken the last
// address in a different block.
func TestClaimsAtOnceShareBlocks(t *testing.T) {
	f := newFixture(t)
	f.withRange(blockOf(1, ""), blockOf(2, ""))
	var claims []*resourceapi.ResourceClaim
	for _, link := range []string{"up0", "up1"} {
		claims = append(claims, allocatedClaim("claim-"+link, link, "pod-"+link))
	}
	filler := 0
	for f.claims.TakenAddresses()["r-1"] < 3 { // one address is left in the first block
		record, err := f.dra.compile(t.Context(),
			allocatedClaim(fmt.Sprintf("filler-%d", filler), "up0", "filler"))
		f.must(err)
		record.Devices = nil
		record.Plans[0].Steps[0].Device = nil
		f.must(f.claims.Hold(record, asItIs))
		filler++
	}
	var wait sync.WaitGroup
	for _, claim := range claims {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if _, err := f.dra.prepare(t.Context(), claim); err != nil {
				t.Error(err)
			}
		}()
	}
	wait.Wait()
	var blocks []string
	for _, claim := range claims {
		record, _ := f.claims.Get(string(claim.UID))
		blocks = append(blocks, record.Plans[0].Steps[0].Range.Block)
	}
	slices.Sort(blocks)
	if !slices.Equal(blocks, []string{"r-1", "r-2"}) {
		t.Errorf("the claims have addresses from blocks %v, want r-1 and r-2", blocks)
	}
}

func TestPrepareWithoutDefinitions(t *testing.T) {
	f := newFixture(t)
	topology := testTopology()
	f.must(yaml.Unmarshal([]byte(`{addressRange: r}`), &topology.Spec.Steps[0]))
	f.must(f.cluster.topologies.GetStore().Add(topology))
	_, err := f.dra.prepare(t.Context(), allocatedClaim("a", "up0", "pod-a"))
	if err == nil || !strings.Contains(err.Error(), "the AddressBlocks of node n could not be read") {
		t.Errorf("error = %v, want an error about unreadable AddressBlocks", err)
	}
}
