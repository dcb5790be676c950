package fleet

import (
	"testing"
)

// TestReboot powers off a node with a pod for every persona, and powers it back on. The links return with different
// indexes and in a different order. Each pod has an interface on the same link again before its container starts. Pods
// on another node are not affected. When the pods have terminated, links and files are in their original state.
func TestReboot(t *testing.T) {
	f := newFleet(t, "reboot")
	rebooted, spared := f.nodes[1], f.nodes[2]
	var pods []string
	for _, p := range personas() {
		f.create(watchedPod(p.name, ofTemplate(p.name), rebooted))
		pods = append(pods, p.name)
	}
	f.create(documents(claim("both", "shared"), watchedPod("first", "resourceClaimName: both", rebooted),
		watchedPod("second", "resourceClaimName: both", rebooted), watchedPod("spared", ofTemplate("moved"), spared)))
	pods = append(pods, "first", "second")
	f.ready(nil, append(pods, "spared")...)
	f.inTheirPods(pods...)
	restarts, container := f.restarts(pods...), f.pod("spared").Status.ContainerStatuses[0].ContainerID
	index := f.inPod(rebooted, "moved")["net1"].Index

	for range 2 { // state from the first reboot must not affect the second
		if err := rebooted.Reboot(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.ready(restarts, pods...)
		f.inTheirPods(pods...)
		f.neverEarly(pods...)
		restarts = f.restarts(pods...)
		if now := f.inPod(rebooted, "moved")["net1"].Index; now == index {
			t.Errorf("the link still has index %d, so the boot changed nothing", now)
		}
	}
	if now := f.pod("spared").Status.ContainerStatuses[0]; now.ContainerID != container || now.RestartCount != 0 {
		t.Errorf("the container of the pod on another node was %s, but is now %+v", container, now)
	}
	f.owned(spared)
	f.remove(append(pods, "spared")...)
	f.asItWas()
	f.offers(rebooted)
}

// inTheirPods checks that on the second node, the pods for the personas, which are named after them, have their links.
// It also checks that the pods named first and second have an interface on the shared link.
func (f *fleet) inTheirPods(pods ...string) {
	f.Helper()
	n := f.nodes[1]
	places := f.owned(n)
	kinds := map[string]string{"moved": "veth", "classic": "veth"}
	for _, name := range pods {
		l := f.inPod(n, name)["net1"]
		want := kinds[name]
		if want == "" {
			want = "macvlan"
		}
		if l.Info.Kind != want || len(l.Addresses) == 0 {
			f.Errorf("net1 of pod %s is unexpected: %s", name, l)
		}
	}
	for _, p := range personas() {
		place := "the host"
		if kinds[p.name] != "" {
			place = "pod " + p.name
		}
		if now := places[f.address(n, p.link)]; now != place {
			f.Errorf("link %s is in %q, want %q", p.link, now, place)
		}
	}
	if l := f.inPod(n, "passthru")["net1"]; l.Address != f.address(n, "eth4") {
		f.Errorf("address of the passthru interface differs from the address of its link: %s", l)
	}
}
