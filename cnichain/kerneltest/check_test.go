package kerneltest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

// called returns the plugin's last call with the given command, as recorded by the test double.
func (b *bench) called(plugin, command string) string {
	b.Helper()
	data, err := os.ReadFile(b.plugins[plugin].path + "." + command)
	b.must(err)
	return string(data)
}

func wantWords(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if len(words) == 0 && err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: error = %v, want it to contain %q", what, err, word)
		}
	}
}

// CHECK receives the same input as DEL and does not change anything. The state in the kernel takes precedence over the
// plugin's result.
func TestDoubleCheck(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	b := newBench(t)
	made := b.attachment(threeDoubles)
	b.must(b.add(made))
	attached := b.state()
	wantWords(t, "healthy", b.executor.Check(context.Background(), made))
	if seen := b.called("second", "CHECK"); !strings.Contains(seen, "CNI_NETNS="+b.pin) ||
		!strings.Contains(seen, `"prevResult"`) || !strings.Contains(seen, `"net2"`) {
		t.Errorf("CHECK was called with the wrong input:\n%s", seen)
	}
	b.plugins["second"].follow(t, script{"CHECK": failsBefore})
	wantWords(t, "a plugin objects", b.executor.Check(context.Background(), made), `step "b" (second)`, "CHECK",
		"scripted to fail")
	b.expect("after checks", attached)
	b.must(inPod(b.pod, func(handle *netlink.Handle) error {
		link, err := handle.LinkByName("net3")
		if err != nil {
			return err
		}
		return handle.LinkDel(link)
	}))
	wantWords(t, "the application has deleted it", b.executor.Check(context.Background(), made), `step "c" (third)`,
		`"net3" is gone`)
	b.must(b.executor.Del(context.Background(), made))
	b.expect("after DEL", b.before)
}

// STATUS applies to a network, so its input does not identify a container. Only the error code "not available" is
// treated as a failure.
func TestDoubleStatus(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	b := newBench(t)
	made := b.attachment(threeDoubles)
	plan := &cnichain.Plan{Topology: "t"}
	for i := range made.Steps {
		plan.Steps = append(plan.Steps, made.Steps[i].Step)
	}
	wantWords(t, "all well", b.executor.Status(context.Background(), plan))
	if seen := b.called("first", "STATUS"); strings.Contains(seen, "CNI_CONTAINERID") ||
		strings.Contains(seen, "CNI_NETNS") || !strings.Contains(seen, `"type":"first"`) {
		t.Errorf("STATUS was called with the wrong input:\n%s", seen)
	}
	b.plugins["first"].follow(t, script{"STATUS": knowsNothing})
	wantWords(t, "a plugin that does not know STATUS", b.executor.Status(context.Background(), plan))
	b.plugins["second"].follow(t, script{"STATUS": isNotAvailable})
	wantWords(t, "not available", b.executor.Status(context.Background(), plan), `step "b" (second)`, "STATUS",
		"the daemon is down")
	b.expect("after STATUS", b.before)
}
