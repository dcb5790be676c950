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
	if len(told.Release) == 1 && len(told.Taken) == 0 {
		for _, claim := range refusal.instead {
			if m.takers[claim.UID] == nil {
				told.Instead = append(told.Instead, fullName(claim))
			}
		}
		slices.Sort(told.Instead)
	}
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

// mostReleasable bounds how many claims are named of which any one would do.
const mostReleasable = 3

// releaseText says which claims have to be released.
func (r *nodeRefusal) releaseText() string {
	switch names := slices.Concat(r.Release, r.Instead); {
	case len(r.Instead) == 0:
		return fmt.Sprintf("%s released: %s", isOrAre(len(r.Release)), strings.Join(r.Release, ", "))
	case len(names) == mostReleasable+1:
		return fmt.Sprintf("any one of these is released: %s, and 1 other",
			strings.Join(names[:mostReleasable], ", "))
	case len(names) > mostReleasable:
		return fmt.Sprintf("any one of these is released: %s, and %d others",
			strings.Join(names[:mostReleasable], ", "), len(names)-mostReleasable)
	default:
		return "any one of these is released: " + strings.Join(names, ", ")
	}
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
