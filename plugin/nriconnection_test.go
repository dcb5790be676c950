package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
)

// The sandbox lists from a connection are kept when the connection ends and are replaced by those from the next
// connection: containers in decided sandboxes can start while the driver is reconnecting.
func TestRuntimeView(t *testing.T) {
	t.Parallel()
	var view runtimeView
	if view.isConnected() || view.now().timeout != 0 || view.now().decided.Has("a") || view.now().busy["b"] {
		t.Error("the view is not empty before the first connection")
	}
	view.begin(sets.New("a"), map[string]bool{"b": true})
	view.setTimeout(time.Second)
	view.setConnected(true)
	ended := view.now().connected
	view.setConnected(false)
	select {
	case <-ended:
	default:
		t.Error("work for a connection continues after the connection ended")
	}
	if view.isConnected() || view.now().timeout != time.Second || !view.now().decided.Has("a") ||
		view.now().decided.Has("b") ||
		!view.now().busy["b"] || view.now().busy["a"] {
		t.Error("the end of a connection changed the runtime's reports")
	}
	view.begin(sets.New("b"), nil)
	if view.now().decided.Has("a") || !view.now().decided.Has("b") || view.now().busy["b"] {
		t.Error("a new connection did not replace the runtime's reports")
	}
}

// Sandboxes whose containers do not name a claim are not held back. In a sandbox that must be attached, all containers
// wait. A sandbox that is running without a record is not touched.
func TestSandboxesOfContainers(t *testing.T) {
	t.Parallel()
	container := func(sandbox string, state api.ContainerState, claims ...string) *api.Container {
		made := &api.Container{PodSandboxId: sandbox, State: state}
		for _, uid := range claims {
			made.CDIDevices = append(made.CDIDevices,
				&api.CDIDevice{Name: attach.Gate{}.DeviceID(attach.Part{ClaimUID: uid})})
		}
		return made
	}
	const created, running = api.ContainerState_CONTAINER_CREATED, api.ContainerState_CONTAINER_RUNNING
	decided, busy := sandboxesOf([]*api.Container{
		container("none", running), container("none", created),
		container("to-attach", created, "c"), container("to-attach", running),
		container("ended", running), container("ended", api.ContainerState_CONTAINER_STOPPED, "c"),
		container("busy", running, "c"), container("busy", running), container("busy", created, "c"),
	})
	if got := strings.Join(sets.List(decided), " "); got != "busy none" || len(busy) != 1 || !busy["busy"] {
		t.Errorf("wrong sandboxes, decided: %s, busy: %v", got, busy)
	}
}
