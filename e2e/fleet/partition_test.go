package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// partitioned is the minimum duration of the partition.
var partitioned = flag.Duration("partition", 0, "how long TestPartition leaves a node without the API server, at least")

// TestPartition disconnects a node from the API server while pods are created and deleted. If a container on that node
// exits, it restarts with its interface. Once the node has reconnected, pods that were deleted during the partition
// terminate, a pod that was already scheduled starts, and each link has exactly one owner.
func TestPartition(t *testing.T) {
	f := newFleet(t, "partition")
	cut, other := f.nodes[2], f.nodes[0]
	t.Cleanup(func() {
		if err := cut.Connect(lab.API); err != nil {
			t.Error(err)
		}
	})
	f.create(documents(watchedPod("stays", ofTemplate("moved"), cut), watchedPod("leaves", ofTemplate("classic"), cut),
		watchedPod("beside", ofTemplate("shared"), cut)))
	f.ready(nil, "stays", "leaves", "beside")
	uid := f.pod("stays").UID

	if err := cut.Disconnect(lab.API); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	f.must("delete", "pod", "leaves", "--wait=false")
	f.create(watchedPod("joins", ofTemplate("passthru"), cut))
	f.eventually("the new pod is scheduled", func(context.Context) error {
		if node := f.pod("joins").Spec.NodeName; node != cut.NodeName() {
			return fmt.Errorf("the pod is on %q", node)
		}
		return nil
	})
	f.startsAgain(cut, "stays")
	f.startsAgain(cut, "beside")
	for i := 0; i < 3 || time.Since(start) < *partitioned; i++ {
		name := fmt.Sprintf("guest-%d", i)
		f.create(watchedPod(name, ofTemplate("moved"), other))
		f.ready(nil, name)
		f.owned(other)
		f.remove(name)
	}
	if place := f.owned(cut)[f.address(cut, "eth2")]; place != "pod leaves" {
		t.Errorf("without the API server, the link of the deleted pod is in %q, so the test proves nothing", place)
	}

	if err := cut.Connect(lab.API); err != nil {
		t.Fatal(err)
	}
	f.gone("leaves")
	f.ready(nil, "stays", "beside", "joins")
	f.neverEarly("stays", "beside", "joins")
	if now := f.pod("stays").UID; now != uid {
		t.Errorf("the remaining pod was replaced: %s, was %s", now, uid)
	}
	f.eventually("links are where they should be", func(context.Context) error {
		places := f.owned(cut)
		if now := [2]string{places[f.address(cut, "eth1")], places[f.address(cut, "eth2")]}; now !=
			[2]string{"pod stays", "the host"} {
			return fmt.Errorf("the links are in %q", now)
		}
		return nil
	})
	f.create(watchedPod("next", ofTemplate("classic"), cut))
	f.ready(nil, "next")
	f.owned(cut)
}

// startsAgain kills a pod's container on its node, whose kubelet may be disconnected from the API server, and waits
// until a new container is running with the pod's interface.
func (f *fleet) startsAgain(n *lab.Node, pod string) {
	f.Helper()
	old := f.process(n, markVariable+"="+pod)
	if old == "" {
		f.Fatalf("pod %s has no process", pod)
	}
	f.kill(n, old)
	f.eventually("the container of pod "+pod+" runs again", func(context.Context) error {
		now := f.process(n, markVariable+"="+pod)
		if now == "" || now == old {
			return errors.New("it does not")
		}
		if l := f.inPod(n, pod)["net1"]; len(l.Addresses) == 0 {
			return fmt.Errorf("its interface is %s", l)
		}
		return nil
	})
}

// process returns the process ID, as seen on the node, of a process that has the given variable in its environment. It
// returns "" if there is no such process.
func (f *fleet) process(n *lab.Node, variable string) string {
	f.Helper()
	found, err := n.NodeGlob("/proc/[0-9]*/environ")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range found {
		environment, err := os.ReadFile(path)
		if err == nil && strings.Contains("\x00"+string(environment), "\x00"+variable+"\x00") {
			return filepath.Base(filepath.Dir(path))
		}
	}
	return ""
}

// kill kills a process on a node. It is not an error if the process has already exited.
func (f *fleet) kill(n *lab.Node, pid string) {
	f.Helper()
	_, err := n.Exec(f.Context(), "busybox", "kill", "-9", pid)
	if err != nil && !strings.Contains(err.Error(), "No such process") {
		f.Fatal(err)
	}
}
