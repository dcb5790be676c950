package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// rolloutPods is the number of pods that are created, one per second, while the driver is updated.
const rolloutPods = 15

// While the DaemonSet is being updated, no new pod starts without its interfaces.
func TestRollingUpdate(t *testing.T) {
	e := newEnv(t, "rollout")
	e.offerMacvlan("ro0", "10.141.0.0/24")
	before := e.state()
	e.observe()
	old := e.processes(stack.Driver)
	var names []string
	ticker := time.NewTicker(time.Second) // create pods at a fixed rate, without waiting for earlier pods
	defer ticker.Stop()
	start := time.Now()
	for i := range rolloutPods {
		names = append(names, fmt.Sprintf("p%02d", i))
		// The second container does not reference the claim. While the driver is not running, nothing holds this
		// container back, as described in docs/limits.md.
		e.create(watchedPod(names[i], "resourceClaimTemplateName: ro0", "net1") + unnamedContainer("net1"))
		if i == 2 {
			if output, err := e.kubectl("", "-n", stack.Namespace, "rollout", "restart", "daemonset/"+
				stack.Driver); err != nil {
				t.Fatal(err, output)
			}
		}
		<-ticker.C
	}
	e.ready(names...)
	t.Logf("%d pods were Ready %s after the first was created", len(names), since(start))
	if output, err := e.kubectl("", "-n", stack.Namespace, "rollout", "status", "daemonset/"+stack.Driver,
		"--timeout=60s"); err != nil {
		t.Fatal(err, output)
	}
	if now := e.processes(stack.Driver); len(now) != 1 || len(old) != 1 || now[0] == old[0] {
		t.Errorf("the driver was not replaced: its processes were %v and are now %v", old, now)
	}
	e.neverStartedEarly()
	unnamed := 0
	for _, pod := range e.watchedPods(context.Background()) {
		if startedEarly(&pod, "unnamed") {
			unnamed++
		}
	}
	t.Logf("containers that do not name the claim and started before it was attached: %d of %d", unnamed, len(names))
	e.deleting(names...)
	e.gone(names...)
	e.asItWas(before)
}

// unnamedContainer returns a container that does not reference the claim, is not watched, and exits if it starts
// without its interfaces.
func unnamedContainer(interfaces ...string) string {
	return fmt.Sprintf(`  - name: unnamed
    image: localhost/toolbox:e2e
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "%s exec sleep 86400"]
`, sees(interfaces))
}
