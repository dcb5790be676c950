package certificate

import (
	"fmt"
	"time"
)

// Limits of the validity of certificates.
const (
	// MinValidity leaves a second for each look.
	MinValidity = looks * time.Second
	// DefaultValidity has a certificate replaced every two months.
	DefaultValidity = 90 * 24 * time.Hour
)

// maxPeriod is the time between two checks. It limits how long a configuration without trust stays unrepaired.
const maxPeriod = 10 * time.Second

// Rotation says when certificates are replaced.
type Rotation struct {
	// Validity is how long a certificate can be used. The next one is made when a third of it is left.
	Validity time.Duration
}

// looks is the least number of looks while a certificate is valid. Of the ten in its last third, the next one needs
// four at most.
const looks = 30

// Period is the time between two looks of keepers and sources.
func (r Rotation) Period() time.Duration { return min(maxPeriod, r.Validity/looks) }

// settled is how long the next certificate must be trusted before it is served, so that every API server has read its
// authority. API servers watch configurations, which usually takes milliseconds.
func (r Rotation) settled() time.Duration { return 2 * r.Period() }

// Wanted returns the content that the Secret should have and the reason for the change; without a reason, nothing must
// be done. names are the names that API servers use; trusted is how long this process has seen the authority of the
// next certificate in their configuration, negative if it is missing there.
//
// It makes one step of the rotation at a time, and every step also repairs a fault: names that have changed, or an
// emptied Secret. An unusable current certificate is replaced without waiting for trust: no client accepts it, so the
// replacement cannot be worse.
func (r Rotation) Wanted(
	held Held, names []string, trusted time.Duration, now time.Time,
) (wanted Held, why string, err error) {
	current, problem := held.Current.check(names, now)
	_, nextProblem := held.Next.check(names, now)
	promoted := Held{Current: held.Next, FormerCA: held.Current.CA}
	switch {
	case problem != nil && nextProblem == nil:
		return promoted, fmt.Sprintf("the next certificate comes early, since the current one is of no use: %v",
			problem), nil
	case problem != nil:
		fresh, err := newPair(names, now, r.Validity)
		return Held{Current: fresh}, fmt.Sprintf("a certificate is made, since there is none that is of use: %v",
			problem), err
	case nextProblem == nil && trusted >= r.settled():
		return promoted, "the next certificate, which is trusted now, takes the place of the current one", nil
	case nextProblem != nil && !now.Before(current.NotAfter.Add(-r.Validity/3)):
		fresh, err := newPair(names, now, r.Validity)
		return Held{Current: held.Current, Next: fresh, FormerCA: held.FormerCA},
			fmt.Sprintf("the next certificate is made, since the current one expires at %s",
				current.NotAfter.Format(time.RFC3339)), err
	}
	return held, "", nil
}
