package attach

import (
	"errors"
	"slices"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// pinHost records which pins are removed.
type pinHost struct {
	*cnitest.Node
	unpinned []string
	err      error
}

func (h *pinHost) Unpin(pin string) error {
	if h.err == nil {
		h.unpinned = append(h.unpinned, pin)
	}
	return h.err
}

// A pin that several claims of a pod share is kept until the last of these claims is released.
func TestUnrecorded(t *testing.T) {
	t.Parallel()
	const (
		first, second = "/run/netns/dra-1", "/run/netns/dra-2"
	)
	node := &pinHost{Node: cnitest.NewNode()}
	s := New(Config{Executor: executor.New(executor.Options{Host: node})})
	s.unrecorded = map[string][]string{"b": {first}, "a": {first, second}}
	if s.IsUnrecorded("c") || !s.IsUnrecorded("a") || s.IsUnrecordedPin("dra-3") || !s.IsUnrecordedPin("dra-2") {
		t.Error("the set contains an unknown claim or lacks an added one")
	}
	node.err = errors.New("the mount is busy")
	if err := s.releaseUnrecorded("a"); !errors.Is(err, node.err) || !s.IsUnrecorded("a") ||
		!s.IsUnrecordedPin("dra-2") {
		t.Errorf("a claim with a remaining pin was forgotten, or error = %v", err)
	}
	node.err = nil
	for _, step := range []struct {
		claim string
		want  []string
	}{{"a", []string{second}}, {"b", []string{first}}, {"b", nil}} {
		node.unpinned = nil
		if err := s.releaseUnrecorded(step.claim); err != nil || !slices.Equal(node.unpinned, step.want) ||
			s.IsUnrecorded(step.claim) {
			t.Errorf("releasing %s unpinned %v (error %v), want %v", step.claim, node.unpinned, err, step.want)
		}
	}
	if s.IsUnrecordedPin("dra-1") || s.IsUnrecordedPin("dra-2") {
		t.Error("a pin without a claim is listed as unrecorded")
	}
}
