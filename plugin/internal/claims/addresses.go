package claims

import (
	"errors"
	"fmt"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// ErrAddressesTaken is returned by [Store.Hold] if other claims took the last addresses in a block after the claim's
// plans had been compiled. Hold may succeed after the plans are recompiled.
var ErrAddressesTaken = errors.New("other claims have just taken the addresses; trying again")

// takenAddresses counts, by AddressBlock name, the addresses in the plans of all records except one claim's record.
func takenAddresses(but string, records ...map[string]Record) map[string]int {
	taken := map[string]int{}
	for _, byUID := range records {
		for uid, record := range byUID {
			if uid != but {
				cnichain.TakenAddresses(record.Plans, len(record.Consumers), taken)
			}
		}
	}
	return taken
}

// addressesExceeded returns an error if a claim takes more addresses from a block than the other claims have left free.
//
// For example, suppose that a block has eight addresses, and two claims with one pod each were compiled when seven were
// taken. Both plans may contain the last address. The first claim to be held gets the address. The other claim is
// compiled again, which fails because the block is now full.
func addressesExceeded(record *Record, held ...map[string]Record) error {
	wanted := takenAddresses("", map[string]Record{record.Claim.UID: *record})
	if len(wanted) == 0 {
		return nil
	}
	taken := takenAddresses(record.Claim.UID, held...)
	for i := range record.Plans {
		for j := range record.Plans[i].Steps {
			given := record.Plans[i].Steps[j].Range
			if given != nil && taken[given.Block]+wanted[given.Block] > given.Size {
				return fmt.Errorf("cannot reserve an address of AddressBlock %s, which has %d: %w", given.Block,
					given.Size, ErrAddressesTaken)
			}
		}
	}
	return nil
}
