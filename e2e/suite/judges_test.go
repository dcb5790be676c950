package suite

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/e2e/internal/observer"
)

// What judges the other tests is not blind: it finds a container without its interface, and whatever is left on the node.
func TestJudges(t *testing.T) {
	e := newEnv(t, "judges")
	t.Run("observer", func(t *testing.T) {
		e := e.part(t)
		e.create(strings.Replace(pod("p", ""), "    image:", "    env: [{name: "+observer.Pod+", value: p}, {name: "+observer.Interfaces+", value: \"eth0,net1\"}]\n    image:", 1))
		watching := observer.New(e.fileOnNode("/proc"), nil)
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		go watching.Run(ctx)
		e.eventually("the observer finds that an interface is missing", func(context.Context) (bool, error) {
			findings, _, _ := watching.Report()
			return slices.ContainsFunc(findings, func(finding string) bool {
				return strings.HasPrefix(finding, "pod p: ") && strings.HasSuffix(finding, " runs without net1")
			}), nil
		})
		e.deleting("p")
		e.gone("p")
	})
	for what, path := range map[string]string{
		"pin":     "/var/run/netns/dra-stray",
		"address": "/var/lib/cni/networks/stray.link/10.0.0.2",
		"gate":    "/var/run/cdi/dra.networking-stray.json",
	} {
		t.Run(what, func(t *testing.T) {
			e := e.part(t)
			before := e.state()
			stray := e.fileOnNode(path)
			if err := os.MkdirAll(filepath.Dir(stray), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(stray, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			after := e.state()
			if err := os.Remove(stray); err != nil {
				t.Fatal(err)
			}
			if cmp.Equal(before, after) {
				t.Errorf("%s is not noticed", path)
			}
		})
	}
	t.Run("link", func(t *testing.T) {
		e := e.part(t)
		before := e.state()
		e.veth("ju0")
		if cmp.Equal(before, e.state()) {
			t.Error("a link that is left is not noticed")
		}
	})
}
