package certificate

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	epoch    = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	service  = []string{"controller.ns.svc"}
	rotation = Rotation{Validity: 90 * 24 * time.Hour}
)

// pairFor creates a pair with the rotation's validity period.
func pairFor(t *testing.T, names []string, now time.Time) Pair {
	t.Helper()
	pair, err := newPair(names, now, rotation.Validity)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 {
		t.Fatalf("want exactly one certificate, got: %s", text)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// taken returns the reason why a client that trusts the bundle rejects the certificate for the given name, or nil if
// the client accepts it.
func taken(t *testing.T, bundle, certificate []byte, name string, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := parse(t, certificate).Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now})
	return err
}

func TestPair(t *testing.T) {
	names := []string{"10.1.2.3", "a.example", "b.example", "fd00::1"}
	pair := pairFor(t, names, epoch)
	for name, good := range map[string]bool{"10.1.2.3": true, "a.example": true, "b.example": true, "fd00::1": true,
		"c.example": false} {
		if err := taken(t, pair.CA, pair.Certificate, name, epoch); (err == nil) != good {
			t.Errorf("unexpected verification result for name %s: %v", name, err)
		}
	}
	for age, good := range map[time.Duration]bool{-31 * 24 * time.Hour: false, -12 * time.Hour: true, rotation.Validity: true,
		rotation.Validity + time.Second: false} {
		if _, err := pair.check(names, epoch.Add(age)); (err == nil) != good {
			t.Errorf("unexpected check result at age %s: %v", age, err)
		}
	}
	ca, server := parse(t, pair.CA), parse(t, pair.Certificate)
	if !ca.IsCA || server.IsCA || !ca.MaxPathLenZero || ca.KeyUsage != x509.KeyUsageCertSign {
		t.Error("the authority must only sign server certificates, and the server must sign none")
	}
	if other := parse(t, pairFor(t, names, epoch).CA); other.SerialNumber.Cmp(ca.SerialNumber) == 0 {
		t.Error("two authorities have the same serial number")
	}
}

func TestCheckRefuses(t *testing.T) {
	good, other := pairFor(t, service, epoch), pairFor(t, service, epoch)
	for name, test := range map[string]struct {
		pair Pair
		want string
	}{
		"nothing":           {Pair{}, "failed to find any PEM data"},
		"another key":       {Pair{good.CA, good.Certificate, other.Key}, "private key does not match"},
		"another authority": {Pair{other.CA, good.Certificate, good.Key}, "unknown authority"},
		"no authority":      {Pair{nil, good.Certificate, good.Key}, "the certificate of the authority is"},
		"garbage":           {Pair{good.CA, []byte("x"), good.Key}, "failed to find any PEM data"},
		"other names":       {pairFor(t, []string{"x"}, epoch), "valid for x, not " + service[0]},
	} {
		if _, err := test.pair.check(service, epoch); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error = %v, want %s", name, err, test.want)
		}
	}
}

func TestWanted(t *testing.T) {
	const day = 24 * time.Hour
	old, next := pairFor(t, service, epoch), pairFor(t, service, epoch.Add(60*day))
	expired, renamed := epoch.Add(91*day), []string{"other.ns.svc"}
	for name, test := range map[string]struct {
		held    Held
		names   []string
		trusted time.Duration
		now     time.Time
		why     string
		want    string // current, next and former, as letters: o(ld), n(ext), f(resh), - for none
	}{
		"nothing yet": {Held{}, service, -1, epoch, "created a certificate", "f--"},
		"young":       {Held{Current: old}, service, -1, epoch.Add(59 * day), "", "o--"},
		"a third is left": {Held{Current: old}, service, -1, epoch.Add(60 * day),
			"created the next certificate", "of-"},
		"a third is left, with history": {Held{Current: next, FormerCA: old.CA}, service, -1, epoch.Add(120 * day),
			"created the next certificate", "nfo"},
		"next is not trusted": {Held{Current: old, Next: next}, service, -1,
			epoch.Add(61 * day), "", "on-"},
		"next is trusted, but new": {Held{Current: old, Next: next}, service, 19 * time.Second,
			epoch.Add(61 * day), "", "on-"},
		"next is trusted": {Held{Current: old, Next: next}, service, 20 * time.Second,
			epoch.Add(60 * day), "promoted the next certificate, which", "n-o"},
		"the clock of another replica is behind": {Held{Current: old, Next: next}, service, 20 * time.Second,
			epoch.Add(60*day - 12*time.Hour), "promoted the next certificate, which", "n-o"},
		"clock of another replica is behind, young": {Held{Current: old}, service, -1, epoch.Add(-12 * time.Hour),
			"", "o--"},
		"expired": {Held{Current: old}, service, -1, expired, "created a certificate", "f--"},
		"expired, but there is a next": {Held{Current: old, Next: next}, service, -1, expired,
			"promoted the next certificate early", "n-o"},
		"other names": {Held{Current: old, Next: next}, renamed, time.Hour, epoch.Add(61 * day),
			"created a certificate", "f--"},
		"damaged": {Held{Current: Pair{CA: old.CA, Certificate: []byte("?"), Key: old.Key}},
			service, -1, epoch, "created a certificate", "f--"},
		"next is damaged": {Held{Current: old, Next: Pair{CA: next.CA}}, service, time.Hour,
			epoch.Add(61 * day), "created the next certificate", "of-"},
		"shorter validity from now on": {Held{Current: pairFor(t, service, epoch.Add(-day))}, service, -1,
			epoch, "", "?--"},
	} {
		t.Run(name, func(t *testing.T) {
			got, why, err := rotation.Wanted(test.held, test.names, test.trusted, test.now)
			if err != nil || !strings.Contains(why, test.why) || (why == "") != (test.why == "") {
				t.Errorf("got %q, %v; want %q", why, err, test.why)
			}
			letter := func(ca []byte) string {
				switch {
				case len(ca) == 0:
					return "-"
				case bytes.Equal(ca, old.CA):
					return "o"
				case bytes.Equal(ca, next.CA):
					return "n"
				case test.want[0] == '?':
					return "?"
				}
				return "f"
			}
			if letters := letter(got.Current.CA) + letter(got.Next.CA) + letter(got.FormerCA); letters != test.want {
				t.Errorf("got %s, want %s", letters, test.want)
			}
			if _, err := got.Current.check(test.names, test.now); err != nil {
				t.Errorf("the served certificate does not pass the check: %v", err)
			}
		})
	}
}

// TestEveryReplicaIsTrustedAtEveryMoment simulates a year of keeper checks, each at a time when the state may have
// changed. API servers and replicas read the objects with independent delays of up to one check. The replicas take
// turns as leader. The clocks of the API servers and replicas are wrong by hours.
func TestEveryReplicaIsTrustedAtEveryMoment(t *testing.T) {
	var held Held
	var bundles, served [][]byte // one per check, newest last
	last := func(all [][]byte) [][]byte { return all[max(0, len(all)-2):] }
	changes := 0
	for now, end := epoch, epoch.Add(365*24*time.Hour); now.Before(end); {
		if len(served) > 1000 {
			t.Fatalf("at %s: more than 1000 looks, so a certificate waits forever", now)
		}
		trusted := time.Duration(-1)
		for i := len(bundles) - 1; i >= 0 && len(held.Next.CA) > 0 && bytes.Contains(bundles[i], held.Next.CA); i-- {
			trusted = time.Duration(len(bundles)-1-i) * rotation.Period()
		}
		leader := []time.Duration{0, 3 * time.Hour, -7 * time.Hour}[len(served)%3]
		wanted, why, err := rotation.Wanted(held, service, trusted, now.Add(leader))
		if err != nil {
			t.Fatal(err)
		}
		held = wanted
		served, bundles = append(served, held.Current.Certificate), append(bundles, held.Bundle())
		for _, certificate := range last(served) {
			for _, bundle := range last(bundles) {
				for _, wrong := range []time.Duration{-12 * time.Hour, 0, 12 * time.Hour} {
					if err := taken(t, bundle, certificate, service[0], now.Add(wrong)); err != nil {
						t.Fatalf("at %s, an API server whose clock is off by %s rejects the certificate: %v", now,
							wrong, err)
					}
				}
			}
		}
		if why != "" {
			changes++
		}
		if why != "" || len(held.Next.CA) > 0 {
			now = now.Add(rotation.Period())
		} else {
			now = now.Add(24 * time.Hour)
		}
	}
	if want := 365/60*2 + 1; changes < want-2 || changes > want+1 {
		t.Errorf("%d changes, want about %d", changes, want)
	}
}

func TestSecretHoldsEverything(t *testing.T) {
	held := Held{Current: pairFor(t, service, epoch), Next: pairFor(t, service, epoch),
		FormerCA: pairFor(t, service, epoch).CA}
	if diff := cmp.Diff(held, read(held.data())); diff != "" {
		t.Errorf("held data changed after a write and a read (-held +read):\n%s", diff)
	}
	held.Next, held.FormerCA = Pair{}, nil
	if got := held.data(); len(got) != 3 {
		t.Errorf("got data %v, want no empty values", got)
	}
}

func TestPeriodLeavesLooks(t *testing.T) {
	for validity, want := range map[time.Duration]time.Duration{MinValidity: time.Second, time.Minute: 2 * time.Second,
		DefaultValidity: 10 * time.Second} {
		r := Rotation{Validity: validity}
		if r.Period() != want || r.settled()+2*r.Period() > validity/6 {
			t.Errorf("validity %s: looks every %s and settles for %s, which is too slow", validity, r.Period(),
				r.settled())
		}
	}
}
