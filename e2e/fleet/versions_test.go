package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/internal/oldest"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// oldTag is the image tag for the oldest supported starting version of an upgrade, and backTag is the tag for the
// oldest supported target of a downgrade.
const oldTag, backTag = "old", "back"

// TestVersions runs the oldest version of the driver from which an upgrade is supported on one node, and the current
// version on the other nodes. Both versions attach interfaces to pods, and a claim moves from one node to another and
// back. Then the old version is upgraded while pods are running, and the pods keep their interfaces. Finally, the
// current version is downgraded to the oldest version to which this is supported, which detaches the interfaces
// attached by each version.
func TestVersions(t *testing.T) {
	f := newFleet(t, "versions")
	old, other := f.nodes[0], f.nodes[1]
	f.importVersion(oldTag, oldest.Commit)
	f.importVersion(backTag, oldest.Back)
	f.setDriver(`{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}`)
	t.Cleanup(func() {
		f.runs(old, stack.DefaultTag)
		f.setDriver(`{"updateStrategy":{"type":"RollingUpdate"}}`)
	})
	f.runs(old, oldTag)
	f.offers(old)

	for _, n := range []*lab.Node{old, other} {
		for _, p := range personas()[1:] {
			f.create(watchedPod(p.name+"-"+n.NodeName(), ofTemplate(p.name), n))
		}
	}
	f.create(claim("wandering", "moved"))
	for i, n := range []*lab.Node{old, other, old} {
		name := fmt.Sprintf("wanderer%d", i)
		f.create(watchedPod(name, "resourceClaimName: wandering", n))
		f.ready(nil, name)
		f.allocatedOn("wandering", n)
		f.statusOf("wandering", n)
		if place := f.owned(n)[f.address(n, "eth1")]; place != "pod "+name {
			t.Errorf("the link of %s is in %q, want the pod of that version", n.NodeName(), place)
		}
		if i < 2 {
			f.remove(name)
		}
	}
	pods := []string{"wanderer2"}
	for _, p := range personas()[1:] {
		pods = append(pods, p.name+"-"+old.NodeName())
		f.ready(nil, p.name+"-"+old.NodeName(), p.name+"-"+other.NodeName())
	}
	f.owned(old)

	before := f.interfaces(old, pods)
	f.runs(old, stack.DefaultTag)
	f.offers(other)
	if diff := cmp.Diff(before, f.interfaces(old, pods)); diff != "" {
		t.Errorf("the other version changed the interfaces of pods (-before +after):\n%s", diff)
	}
	f.startsAgain(old, pods[1])
	f.create(watchedPod("of-the-new", ofTemplate("shared"), old))
	f.ready(nil, "of-the-new")
	pods = append(pods, "of-the-new")

	before = f.interfaces(old, pods)
	f.runs(old, backTag)
	f.offers(old)
	if diff := cmp.Diff(before, f.interfaces(old, pods)); diff != "" {
		t.Errorf("the older version changed the interfaces of pods (-before +after):\n%s", diff)
	}
	f.startsAgain(old, pods[1])
	f.startsAgain(old, "of-the-new")
	f.create(watchedPod("of-the-old", ofTemplate("shared"), old))
	f.ready(nil, "of-the-old")
	pods = append(pods, "of-the-old")
	f.remove(pods...)
	f.eventually(old.NodeName()+" is as it was", func(ctx context.Context) error {
		now, err := inspect(ctx, old)
		if diff := cmp.Diff(f.before[old.NodeName()], now); err == nil && diff != "" {
			err = errors.New(diff)
		}
		return err
	})
}

// importVersion imports the image built from a commit into all nodes, under the given tag.
func (f *fleet) importVersion(tag, commit string) {
	f.Helper()
	clone, err := filepath.Abs("../..")
	if err != nil {
		f.Fatal(err)
	}
	cache, err := lab.CacheDir()
	if err != nil {
		f.Fatal(err)
	}
	version, err := oldest.Build(f.Context(), clone, cache, commit)
	if errors.Is(err, oldest.ErrNoHistory) {
		f.Skip(err)
	}
	if err != nil {
		f.Fatal(err)
	}
	images, err := stack.Pack(version.Bin, f.TempDir(), tag)
	if err == nil {
		err = f.cluster.ImportImages(f.Context(), images...)
	}
	if err != nil {
		f.Fatal(err)
	}
}

// setDriver patches the specification of the driver's DaemonSet.
func (f *fleet) setDriver(spec string) {
	f.Helper()
	f.must("-n", stack.Namespace, "patch", "daemonset", stack.Driver, "--type=merge", "--patch", `{"spec":`+spec+`}`)
}

// runs updates the driver on one node to the image with the given tag, without changing other nodes, and waits until
// the driver is ready.
func (f *fleet) runs(n *lab.Node, tag string) {
	f.Helper()
	image := "localhost/" + stack.Driver + ":" + tag
	f.must("-n", stack.Namespace, "set", "image", "daemonset/"+stack.Driver, "driver="+image)
	f.must("-n", stack.Namespace, "delete", "pod", "-l", "app.kubernetes.io/name="+stack.Driver,
		"--field-selector=spec.nodeName="+n.NodeName())
	f.eventually(n.NodeName()+" runs "+image, func(ctx context.Context) error {
		pods, err := f.client.CoreV1().Pods(stack.Namespace).List(ctx, metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/name=" + stack.Driver, FieldSelector: "spec.nodeName=" + n.NodeName()})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Spec.Containers[0].Image != image || !isReady(&pods.Items[0]) {
			return fmt.Errorf("there are %d driver pods, or the pod is not ready", len(pods.Items))
		}
		return nil
	})
}

// interfaces returns the interfaces in pods on a node, with their indexes.
func (f *fleet) interfaces(n *lab.Node, pods []string) map[string][]string {
	f.Helper()
	all := map[string][]string{}
	for _, pod := range pods {
		links := f.inPod(n, pod)
		for _, name := range slices.Sorted(maps.Keys(links)) {
			all[pod] = append(all[pod], fmt.Sprintf("%d: %s", links[name].Index, links[name]))
		}
	}
	return all
}
