package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// Pods from the same files may hold the devices that a refused pod needs. Their claims do not exist in the cluster, so
// they cannot be released.

// refusalOf converts a refusal to its JSON form. Only existing claims can be released; for simulated claims, it names
// the pod or claim in the simulation.
func (m *model) refusalOf(refusal *Refusal) nodeRefusal {
	told := nodeRefusal{Node: refusal.Node, Reason: refusal.Reason, Short: refusal.Short}
	var enough []string
	for _, claim := range refusal.inTheWay {
		if taker := m.takers[claim.UID]; taker == nil {
			told.Release = append(told.Release, fullName(claim))
		} else if !slices.Contains(enough, taker.title) {
			enough = append(enough, taker.title)
		}
	}
	told.Taken = slices.Clone(enough)
	for _, claim := range refusal.instead {
		taker := m.takers[claim.UID]
		switch {
		case taker != nil && !slices.Contains(told.Taken, taker.title):
			told.Taken = append(told.Taken, taker.title)
		case taker == nil && len(refusal.inTheWay) == 1:
			told.Instead = append(told.Instead, fullName(claim))
		}
	}
	told.AnyOne = len(refusal.inTheWay) == 1 && len(told.Taken)+len(told.Release)+len(told.Instead) > 1
	if !told.AnyOne && len(enough) < len(told.Taken) {
		told.TakenEnough = enough
	}
	// Sort by the order of the trials, so that web-2 comes before web-10.
	slices.SortStableFunc(told.Taken, func(a, b string) int { return cmp.Compare(m.position(a), m.position(b)) })
	slices.Sort(told.Release)
	slices.Sort(told.Instead)
	return told
}

// position returns the index of the trial with a title.
func (m *model) position(title string) int {
	return slices.IndexFunc(m.trials, func(t trial) bool { return t.title == title })
}

// mostTakers limits the names in a message: a workload may have hundreds of pods.
const mostTakers = 5

// takenText lists the pods and claims in the simulation that hold the required devices.
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
	return fmt.Sprintf("Taken by %s of this simulation: %s", strings.Join(counts, " and "), takerNames(titles))
}

// takerNames lists pods and claims. It omits the prefix "pod" if all of them are pods.
func takerNames(titles []string) string {
	names := slices.Clone(titles)
	if !slices.ContainsFunc(titles, func(title string) bool { return !strings.HasPrefix(title, podTitle) }) {
		for i := range names {
			names[i] = strings.TrimPrefix(names[i], podTitle)
		}
	}
	if len(names) > mostTakers {
		names = append(names[:mostTakers], fmt.Sprintf("and %d more", len(names)-mostTakers))
	}
	return strings.Join(names, ", ")
}

// mostReleasable limits how many alternative claims a message names.
const mostReleasable = 3

// fitsText describes what must be removed so that the claims fit; "" if that is obvious because everything listed must
// be removed.
func (r *nodeRefusal) fitsText() string {
	them := "without them"
	switch {
	case len(r.Taken) == 1:
		them = "without it"
	case r.AnyOne:
		them = "without any one of them"
	case len(r.TakenEnough) > 0:
		them = fmt.Sprintf("without %d of them, for example %s", len(r.TakenEnough), takerNames(r.TakenEnough))
	}
	releasable := len(r.Release) + len(r.Instead)
	switch {
	case len(r.Taken) == 0 && releasable == 0:
		return ""
	case len(r.Taken) == 0:
		return "It fits when " + r.releaseText()
	case releasable == 0 && !r.AnyOne && len(r.TakenEnough) == 0:
		return ""
	case releasable == 0:
		return "It fits " + them
	case r.AnyOne:
		return fmt.Sprintf("It fits %s, or when %s", them, r.releaseText())
	}
	return fmt.Sprintf("It fits %s, and when %s", them, r.releaseText())
}

// releaseText lists the claims to release.
func (r *nodeRefusal) releaseText() string {
	names := slices.Concat(r.Release, r.Instead)
	slices.Sort(names)
	switch {
	case len(names) == 1 || !r.AnyOne:
		return fmt.Sprintf("%s released: %s", isOrAre(len(names)), strings.Join(names, ", "))
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

// podSummary counts the pods that fit; it is empty for fewer than two pods.
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
