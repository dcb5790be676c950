package offers

import "testing"

// A policy that fails for devices and matches none, a policy that is false for all devices, and a policy that has an
// effect have different states.
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
			t.Errorf("%+v: state %q, want %q", tested, got, want)
		}
	}
}
