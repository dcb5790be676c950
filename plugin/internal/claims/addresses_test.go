package claims

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// withAddresses returns the record of a claim for which each pod takes one address from each listed block. The blocks
// have the given size.
func withAddresses(name string, pods, size int, blocks ...string) Record {
	record := Record{Claim: cnichain.Claim{Namespace: "ns", Name: name, UID: name}, Plans: []cnichain.Plan{{}}}
	for i := range pods {
		record.Consumers = append(record.Consumers, Consumer{PodUID: fmt.Sprintf("%s-%d", name, i)})
	}
	for _, block := range blocks {
		record.Plans[0].Steps = append(record.Plans[0].Steps,
			cnichain.PlanStep{Range: &cnichain.StepRange{Name: "r", Block: block, Size: size}})
	}
	return record
}

func TestBlocksAreNotGivenTwice(t *testing.T) {
	f := newStoreFixture(t)
	f.must(f.claims.Hold(withAddresses("a", 1, 4, "r-0", "r-0"), unchanged))
	f.must(f.claims.Hold(withAddresses("b", 1, 4, "r-1"), unchanged))
	if err := f.claims.Hold(withAddresses("c", 3, 4, "r-0"), unchanged); !errors.Is(err, ErrAddressesTaken) {
		t.Errorf("three pods with two addresses: error = %v, want ErrAddressesTaken", err)
	}
	// The addresses are reserved while the record is being completed.
	during := func(*Record) error {
		if err := f.claims.Hold(withAddresses("e", 1, 4, "r-0"), unchanged); !errors.Is(err, ErrAddressesTaken) {
			t.Errorf("another claim received the reserved addresses, error = %v", err)
		}
		return nil
	}
	f.must(f.claims.Hold(withAddresses("d", 2, 4, "r-0"), during))
	if got, want := fmt.Sprint(f.claims.TakenAddresses()), "map[r-0:4 r-1:1]"; got != want {
		t.Errorf("TakenAddresses = %s, want %s", got, want)
	}
	f.must(f.claims.Release("a"))
	f.must(f.claims.Hold(withAddresses("e", 1, 4, "r-0"), unchanged))
}
