package attach

import (
	"errors"
	"slices"
	"testing"
)

// A pin that several claims of a pod share stays until the last of these claims is released.
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
		t.Error("the set contains an unknown claim, or lacks an added claim")
	}
	var unpinned []string
	unpin := func(pin string) error { unpinned = append(unpinned, pin); return nil }
	broken := errors.New("the mount is busy")
	if err := u.remove("a", func(string) error { return broken }); !errors.Is(err, broken) || !u.has("a") ||
		!u.hasPin("dra-2") {
		t.Errorf("a claim whose pin still exists is forgotten (%v)", err)
	}
	for _, step := range []struct {
		claim string
		want  []string
	}{{"a", []string{second}}, {"b", []string{first}}, {"b", nil}} {
		unpinned = nil
		if err := u.remove(step.claim, unpin); err != nil || !slices.Equal(unpinned, step.want) || u.has(step.claim) {
			t.Errorf("releasing %s has unpinned %v (%v), want %v", step.claim, unpinned, err, step.want)
		}
	}
	if u.hasPin("dra-1") || u.hasPin("dra-2") {
		t.Error("a pin without a claim is known")
	}
}
