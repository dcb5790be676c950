package attach

import (
	"slices"
	"testing"
)

// TestUnrecorded holds that a pin that several claims of a pod share stays until the last of them is released.
func TestUnrecorded(t *testing.T) {
	t.Parallel()
	const (
		first, second = "/run/netns/dra-1", "/run/netns/dra-2"
	)
	u := newUnrecorded()
	u.add("b", []string{first})
	u.add("a", []string{first, second})
	if got := u.claims(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("claims are %v", got)
	}
	if u.has("c") || !u.has("a") || u.hasPin("dra-3") || !u.hasPin("dra-2") {
		t.Error("it has what was not added, or lacks what was")
	}
	if got := u.remove("a"); !slices.Equal(got, []string{second}) || u.has("a") || u.hasPin("dra-2") {
		t.Errorf("pins that nobody else needs are %v, want the second", got)
	}
	if got := u.remove("b"); !slices.Equal(got, []string{first}) || u.hasPin("dra-1") {
		t.Errorf("pins that nobody else needs are %v, want the first", got)
	}
	if got := u.remove("b"); len(got) > 0 {
		t.Errorf("a claim that is not there has pins %v", got)
	}
}
