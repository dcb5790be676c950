package certificate

import (
	"fmt"
	"time"
)

// Limits for the validity of certificates.
const (
	// MinValidity leads to one check per second.
	MinValidity = looks * time.Second
	// DefaultValidity leads to a new certificate every two months.
	DefaultValidity = 90 * 24 * time.Hour
)

// maxPeriod is the maximum time between two checks. It limits how long it takes to restore a removed caBundle.
const maxPeriod = 10 * time.Second

// Rotation decides when certificates are replaced.
type Rotation struct {
	// Validity is how long a certificate is valid. A new certificate is created when a third of this time is left.
	Validity time.Duration
}

// looks is the minimum number of checks during a certificate's validity. Ten of these checks fall into the last third,
// and replacing the certificate takes at most four checks.
const looks = 30

// Period returns the time between checks by keepers and sources.
func (r Rotation) Period() time.Duration { return min(maxPeriod, r.Validity/looks) }

// settled returns how long the next certificate must be trusted before it is served, so that all API servers have had
// time to read its authority. API servers watch webhook configurations and usually receive changes within milliseconds.
func (r Rotation) settled() time.Duration { return 2 * r.Period() }

// Wanted returns the content that the Secret should have and the reason for the change. An empty reason means that no
// change is needed. names are the host names that API servers use. trusted is how long this process has observed the
// next certificate's authority in the webhook configuration; it is negative if the authority is not in the
// configuration.
//
// Each call performs one step of the rotation, and every step also repairs faults such as changed names or an emptied
// Secret. If the current certificate is unusable, it is replaced immediately, even if the new one is not trusted yet:
// no client accepts the current certificate, so its replacement cannot be worse.
func (r Rotation) Wanted(
	held Held, names []string, trusted time.Duration, now time.Time,
) (wanted Held, why string, err error) {
	current, problem := held.Current.check(names, now)
	_, nextProblem := held.Next.check(names, now)
	promoted := Held{Current: held.Next, FormerCA: held.Current.CA}
	switch {
	case problem != nil && nextProblem == nil:
		return promoted, fmt.Sprintf("promoted the next certificate early, because the current one is unusable: %v",
			problem), nil
	case problem != nil:
		fresh, err := newPair(names, now, r.Validity)
		return Held{Current: fresh}, fmt.Sprintf("created a certificate, because no usable one exists: %v",
			problem), err
	case nextProblem == nil && trusted >= r.settled():
		return promoted, "promoted the next certificate, which API servers trust now, to current", nil
	case nextProblem != nil && !now.Before(current.NotAfter.Add(-r.Validity/3)):
		fresh, err := newPair(names, now, r.Validity)
		return Held{Current: held.Current, Next: fresh, FormerCA: held.FormerCA},
			fmt.Sprintf("created the next certificate, because the current one expires at %s",
				current.NotAfter.Format(time.RFC3339)), err
	}
	return held, "", nil
}
