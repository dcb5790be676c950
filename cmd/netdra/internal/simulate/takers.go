package simulate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// Devices that a refused pod wants may be taken by pods of the same files: nobody can release their claims, which do
// not exist.

// refusalOf puts a refusal into words of JSON. Only claims that exist can be released: others are told by who of the
// simulation took them.
func (m *model) refusalOf(refusal *Refusal) nodeRefusal {
	told := nodeRefusal{Node: refusal.Node, Reason: refusal.Reason, Short: refusal.Short}
	for _, claim := range refusal.inTheWay {
		taker := m.takers[claim.UID]
		switch {
		case taker == nil:
			told.Release = append(told.Release, claim.Namespace+"/"+claim.Name)
		case !slices.Contains(told.Taken, taker.title):
			told.Taken = append(told.Taken, taker.title)
		}
	}
	slices.Sort(told.Release)
	return told
}

// mostTakers bounds how many are named: a workload may have hundreds of pods.
const mostTakers = 5

// takenText says which pods and claims of the simulation have what is wanted.
func takenText(titles []string) string {
	var pods int
	for _, title := range titles {
		if strings.HasPrefix(title, podTitle) {
			pods++
		}
	}
	var counts []string
	if pods > 0 {
		counts = append(counts, printer.Plural(pods, "pod"))
	}
	if claims := len(titles) - pods; claims > 0 {
		counts = append(counts, printer.Plural(claims, "claim"))
	}
	names := slices.Clone(titles)
	if pods == len(titles) {
		for i := range names {
			names[i] = strings.TrimPrefix(names[i], podTitle)
		}
	}
	if len(names) > mostTakers {
		names = append(names[:mostTakers], fmt.Sprintf("and %d more", len(names)-mostTakers))
	}
	return fmt.Sprintf("Taken by %s of this simulation: %s", strings.Join(counts, " and "), strings.Join(names, ", "))
}

// podSummary counts the pods that fit; it is empty for less than two.
func podSummary(answers []Answer) string {
	pods, fit := 0, 0
	for i := range answers {
		if strings.HasPrefix(answers[i].What, podTitle) {
			pods++
			if answers[i].Fits {
				fit++
			}
		}
	}
	if pods < 2 {
		return ""
	}
	return fmt.Sprintf("%d of %d pods fit", fit, pods)
}
