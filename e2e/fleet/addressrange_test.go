package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// spread contains an AddressRange and two topologies that use addresses from it: one with macvlan interfaces on the
// wire, and one that moves a link on the wire into the pod and creates a VLAN on it.
const spread = `
apiVersion: networking.dra.io/v1alpha1
kind: AddressRange
metadata: {name: spread}
spec: {cidrs: [10.205.0.0/24, "fd00:205::/120"], blockSize: 4, returnDelay: 1h}
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: spread}
spec:
  steps:
  - name: link
    type: macvlan
    selector: {cel: 'device.attributes["dra.networking"].ifName == "eth3"'}
    addressRange: spread
    config: {mode: bridge, ipam: {type: host-local}}
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: tagged}
spec:
  steps:
  - name: link
    type: netdev
    ifName: trunk
    selector: {cel: 'device.attributes["dra.networking"].ifName == "eth1"'}
  - name: vlan
    type: vlan
    dependOn: [link]
    ifName: net1
    addressRange: spread
    config: {vlanId: 100, master: "{{ link.interfaceName }}", linkInContainer: true, ipam: {type: host-local}}
`

// spreadTemplates contains claim templates for the two topologies.
const spreadTemplates = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: spread}
spec: {spec: {devices: {requests: [{name: link, exactly: {deviceClassName: spread-link}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: tagged}
spec: {spec: {devices: {requests: [{name: link, exactly: {deviceClassName: tagged-link}}]}}}
`

// TestAddressRange allocates addresses from one range to pods on several nodes, on macvlan interfaces and in a VLAN.
// The addresses are unique, and the pods can reach each other through their nodes' kernels. A lost node keeps its
// blocks and uses them again when it returns. If a Node object was deleted, the node is assigned new blocks, and its
// old blocks stay reserved until their return delay expires.
func TestAddressRange(t *testing.T) {
	f := newFleet(t, "range")
	f.apply(spread)
	t.Cleanup(f.removeSpread)
	f.create(spreadTemplates)
	lost, other, replaced := f.besideController()
	places := map[string]*lab.Node{"left0": lost, "left1": lost, "right0": other, "right1": other, "far": replaced}
	for name, n := range places {
		f.create(watchedPod(name, ofTemplate("spread"), n))
	}
	f.ready(nil, slices.Collect(maps.Keys(places))...)
	addresses := f.uniqueAddresses(places)
	f.reach("left0", addresses["left1"], addresses["right0"], addresses["right1"], addresses["far"])
	f.vlan(lost, other, "left0")

	before := f.blocks()
	f.swap(lost, replaced, "left0", "left1", "far")
	for _, name := range []string{"left0", "left1", "far"} {
		delete(places, name)
	}
	f.eventually("the node that was replaced has another block", func(context.Context) error {
		now := f.blocks()
		for name, block := range before {
			released := block.Spec.NodeName == replaced.NodeName()
			if now[name].Spec.NodeUID != block.Spec.NodeUID || (now[name].Status.ReleasedAt != nil) != released {
				return fmt.Errorf("block %s of %s was %+v and is now %+v", name, block.Spec.NodeName, block, now[name])
			}
		}
		if len(now) != len(before)+1 {
			return fmt.Errorf("there were %d blocks, and now there are %d", len(before), len(now))
		}
		return nil
	})
	f.offers(lost)
	f.offers(replaced)
	for name, n := range map[string]*lab.Node{"again0": lost, "again1": lost, "anew0": replaced, "anew1": replaced} {
		f.create(watchedPod(name, ofTemplate("spread"), n))
		places[name] = n
	}
	f.ready(nil, slices.Collect(maps.Keys(places))...)
	addresses = f.uniqueAddresses(places)
	f.reach("again0", addresses["right0"], addresses["anew0"], addresses["anew1"])
	// The deleted Node object's blocks stay reserved as long as a node with the same name has claims that are about as
	// old as the release of the blocks, so remove the pods with these claims first.
	f.remove("anew0", "anew1")
	delete(places, "anew0")
	delete(places, "anew1")
	f.returned()
	f.uniqueAddresses(places)
	f.neverEarly(slices.Collect(maps.Keys(places))...)
	f.remove(slices.Collect(maps.Keys(places))...)
}

// besideController returns the nodes, with the controller's node in the middle. The controller must detect changes on
// the other two.
func (f *fleet) besideController() (first, controllers, last *lab.Node) {
	f.Helper()
	place := f.must("-n", stack.Namespace, "get", "pods", "-l", "app.kubernetes.io/name="+stack.Controller, "-o",
		"jsonpath={.items[0].spec.nodeName}")
	rest := slices.DeleteFunc(slices.Clone(f.nodes), func(n *lab.Node) bool { return n.NodeName() == place })
	index := slices.IndexFunc(f.nodes, func(n *lab.Node) bool { return n.NodeName() == place })
	if index < 0 || len(rest) != 2 {
		f.Fatalf("the controller runs on %q, want it on one of three nodes", place)
	}
	return rest[0], f.nodes[index], rest[1]
}

// vlan checks that pods on two nodes that are in the same VLAN can reach each other, and that a pod outside the VLAN
// cannot reach them. If the kernel does not support VLANs, vlan checks that events for the pods report this before
// anything is attached, and that the pods' links stay on the host.
func (f *fleet) vlan(left, right *lab.Node, outside string) {
	f.Helper()
	places := map[string]*lab.Node{"tagged-left": left, "tagged-right": right}
	for name, n := range places {
		f.create(watchedPod(name, ofTemplate("tagged"), n))
	}
	probe := "ip link add link eth4 name probe type vlan id 4000 && ip link delete probe"
	if output, err := left.Exec(f.Context(), "sh", "-c", probe); err != nil {
		f.Logf("the kernel does not support VLANs: %v: %s", err, output)
		for name := range places {
			f.event(name, "the kernel does not support links of type vlan")
		}
	} else {
		f.ready(nil, "tagged-left", "tagged-right")
		addresses := f.uniqueAddresses(places)
		f.reach("tagged-left", addresses["tagged-right"])
		if output, err := f.ping(outside, addresses["tagged-left"][0]); err == nil {
			f.Errorf("a pod outside the VLAN reached a pod inside it:\n%s", output)
		}
	}
	f.remove("tagged-left", "tagged-right")
	for _, n := range places {
		if place := f.owned(n)[f.address(n, "eth1")]; place != "the host" {
			f.Errorf("the link of %s is in %q, want the host", n.NodeName(), place)
		}
	}
}

// event waits for an event for a pod that contains all texts.
func (f *fleet) event(pod string, texts ...string) {
	f.Helper()
	f.eventually(fmt.Sprintf("an event of pod %s says %q", pod, texts), func(context.Context) error {
		output, err := f.kubectl("", "get", "events", "--field-selector=involvedObject.name="+pod)
		for _, text := range texts {
			if !strings.Contains(output, text) {
				return fmt.Errorf("%w: %s", errors.Join(errors.New("no event contains all texts"), err), output)
			}
		}
		return nil
	})
}

// swap switches off two nodes with pods, force-deletes the pods, and switches the nodes back on. Before it does so, it
// deletes the second node's Node object, so that this node registers as a new node.
func (f *fleet) swap(lost, replaced *lab.Node, pods ...string) {
	f.Helper()
	for _, n := range []*lab.Node{lost, replaced} {
		f.Cleanup(func() { // the following tests need the node
			if err := n.PowerOn(context.Background()); err != nil {
				f.Error(err)
			}
		})
		if err := n.PowerOff(f.Context()); err != nil {
			f.Fatal(err)
		}
	}
	f.must("delete", "node", replaced.NodeName())
	f.must(append([]string{"delete", "pod", "--force", "--grace-period=0"}, pods...)...)
	f.gone(pods...)
	f.eventually("the blocks of the node that is gone are released", func(context.Context) error {
		for name, block := range f.blocks() {
			if block.Spec.NodeName == replaced.NodeName() && block.Status.ReleasedAt == nil {
				return fmt.Errorf("block %s is not released", name)
			}
		}
		return nil
	})
	for _, n := range []*lab.Node{lost, replaced} {
		if err := n.PowerOn(f.Context()); err != nil {
			f.Fatal(err)
		}
	}
}

// blocks returns the address blocks in the range, keyed by name.
func (f *fleet) blocks() map[string]v1alpha1.AddressBlock {
	f.Helper()
	var list v1alpha1.AddressBlockList
	if err := json.Unmarshal([]byte(f.must("get", "addressblocks", "-o", "json")), &list); err != nil {
		f.Fatal(err)
	}
	found := map[string]v1alpha1.AddressBlock{}
	for _, block := range list.Items {
		if block.Spec.AddressRange == "spread" {
			found[block.Name] = block
		}
	}
	return found
}

// returned shortens the range's return delay, and waits until all released blocks have been returned. The controller
// measures the delay itself instead of using the time in a block's status.
func (f *fleet) returned() {
	f.Helper()
	if output, err := f.kubectl("", "patch", "addressrange", "spread", "--type=merge", "--patch",
		`{"spec":{"returnDelay":"1m"}}`); err != nil && !strings.Contains(output, "NotFound") {
		f.Fatal(err, output)
	}
	f.eventually("released blocks are returned", func(context.Context) error {
		var left []string
		for name, block := range f.blocks() {
			if block.Status.ReleasedAt != nil {
				left = append(left, name)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%v still exist", left)
		}
		return nil
	})
}

// removeSpread removes the range and the objects that use it.
func (f *fleet) removeSpread() {
	f.must("delete", "pods", "--all", "--force", "--grace-period=0")
	f.must("delete", "networktopology", "spread", "tagged")
	f.must("delete", "addressrange", "spread", "--wait=false")
	f.eventually("the range is gone", func(context.Context) error {
		f.returned()
		if output, err := f.kubectl("", "get", "addressrange", "spread"); err == nil {
			return fmt.Errorf("it still exists:\n%s", output)
		}
		return nil
	})
}

// uniqueAddresses is like distinctAddresses, but also checks that each pod has one IPv4 and one IPv6 address, from
// blocks that are assigned to the current UID of the pod's node.
func (f *fleet) uniqueAddresses(places map[string]*lab.Node) map[string][]string {
	f.Helper()
	blocks, found := f.blocks(), f.distinctAddresses(places)
	for _, pod := range slices.Sorted(maps.Keys(places)) {
		uid := types.UID(f.must("get", "node", places[pod].NodeName(), "-o", "jsonpath={.metadata.uid}"))
		for _, address := range found[pod] {
			if !slices.ContainsFunc(slices.Collect(maps.Values(blocks)), func(block v1alpha1.AddressBlock) bool {
				return block.Spec.NodeUID == uid && block.Status.ReleasedAt == nil && inBlock(&block, address)
			}) {
				f.Errorf("pod %s on %s has the address %s, which is in no block of the node: %+v", pod,
					places[pod].NodeName(), address, blocks)
			}
		}
		if len(found[pod]) != 2 {
			f.Fatalf("pod %s has the addresses %v, want two", pod, found[pod])
		}
	}
	return found
}

// distinctAddresses returns the pods' addresses on net1, IPv4 before IPv6, as reported by their nodes' kernels. It
// checks that no two pods have the same address.
func (f *fleet) distinctAddresses(places map[string]*lab.Node) map[string][]string {
	f.Helper()
	found, owners := map[string][]string{}, map[string]string{}
	for _, pod := range slices.Sorted(maps.Keys(places)) {
		for _, address := range f.inPod(places[pod], pod)["net1"].Addresses {
			if strings.HasPrefix(address.Local, "fe80:") {
				continue
			}
			found[pod] = append(found[pod], address.Local)
			if owner, duplicate := owners[address.Local]; duplicate {
				f.Errorf("pods %s and %s both have the address %s", owner, pod, address.Local)
			}
			owners[address.Local] = pod
		}
		slices.SortFunc(found[pod], func(a, b string) int { return strings.Count(a, ":") - strings.Count(b, ":") })
	}
	return found
}

func inBlock(block *v1alpha1.AddressBlock, address string) bool {
	return slices.ContainsFunc(block.Spec.CIDRs, func(cidr string) bool {
		return netip.MustParsePrefix(cidr).Contains(netip.MustParseAddr(address))
	})
}

// reach waits until a pod has received ping replies from all of its peers' addresses through net1. A busy machine may
// drop individual pings.
func (f *fleet) reach(pod string, peers ...[]string) {
	f.Helper()
	for _, address := range slices.Concat(peers...) {
		f.eventually(fmt.Sprintf("pod %s reaches %s", pod, address), func(context.Context) error {
			output, err := f.ping(pod, address)
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, output)
			}
			return err
		})
	}
}

func (f *fleet) ping(pod, address string) (string, error) {
	f.Helper()
	return f.kubectl("", "exec", pod, "--", "ping", "-c", "1", "-w", "3", "-I", "net1", address)
}
