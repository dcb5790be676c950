package offers

import "testing"

// Policies have different states if they fail on some devices and match none, are false for all devices, or have an
// effect.
func TestStatesOfPolicies(t *testing.T) {
	for want, tested := range map[string]PolicyEffect{
		effectNoMatch:    {},
		effectFailed:     {Fails: []string{"eth0"}},
		effectActive:     {Fails: []string{"eth0"}, Loses: []string{"eth1"}},
		effectUnusable:   {Unusable: []string{"eth1"}},
		effectInvalid:    {Fails: []string{"eth0"}, Invalid: []string{"cannot compile"}},
		effectOtherNodes: {otherNodes: true},
	} {
		if got := tested.state(); got != want {
			t.Errorf("%+v: got state %q, want %q", tested, got, want)
		}
	}
}
