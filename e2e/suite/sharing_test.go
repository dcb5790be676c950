package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// When a pod with two claims terminates, the claim that a second pod is still using is not affected.
func TestClaimsEndApart(t *testing.T) {
	e := newEnv(t, "apart")
	e.offerMacvlan("ap0", "10.145.0.0/24")
	e.offerMacvlan("ap1", "10.146.0.0/24")
	before := e.state()
	e.observe()
	e.create(documents(sharedClaim("a", "ap0-uplink"), sharedClaim("b", "ap1-uplink")))
	both := strings.NewReplacer("resourceClaimName: a}", "resourceClaimName: a}, {name: second, resourceClaimName: b}",
		"claims: [{name: net}]", "claims: [{name: net}, {name: second}]").
		Replace(watchedPod("both", "resourceClaimName: a", "net1", "net2"))
	e.create(documents(both, watchedPod("one", "resourceClaimName: b", "net1")))
	e.ready("both", "one")
	e.deleting("both")
	e.gone("both")
	e.eventually("only the claim that is in use is prepared", func(ctx context.Context) (bool, error) {
		claims, err := e.records(ctx, "claims")
		return len(claims) == 1 &&
			strings.Contains(string(claims[0]), `"b"`), fmt.Errorf("claims are %s, %w", claims, err)
	})
	if shown := e.inPod("one", "ip", "-4", "-o", "addr", "show", "dev", "net1"); !strings.Contains(shown,
		"inet 10.146.0.") {
		t.Errorf("want an address in 10.146.0.0/24 on net1, got\n%s", shown)
	}
	e.neverStartedEarly()
	e.deleting("one")
	e.gone("one")
	e.deleteClaims("a", "b")
	e.asItWas(before)
}

// An exclusive device belongs to one pod, even if two pods reference its claim. An event for the second pod names the
// owner, and the second pod gets the device once the owner has terminated.
func TestExclusiveDeviceOfTwoPods(t *testing.T) {
	e := newEnv(t, "two")
	e.veth("tp0")
	e.apply(documents(expose("tp0", "host-device", false, "tp0"), topology("tp0", `
- name: link
  type: host-device
  selector: {cel: 'device.attributes["dra.networking"].ifName == "tp0"'}
  config: {ipam: {type: host-local, subnet: 10.147.0.0/24}}`)))
	e.offer("tp0")
	before := e.state()
	e.observe()
	e.create(sharedClaim("only", "tp0-link"))
	e.create(watchedPod("holder", "resourceClaimName: only", "net1"))
	e.ready("holder")
	e.create(watchedPod("rival", "resourceClaimName: only", "net1"))
	e.event("rival", "NetworkAttachFailed", "pod two/holder uses its exclusive device", "kubectl netdra claims")
	e.deleting("holder")
	e.gone("holder")
	e.ready("rival")
	e.neverStartedEarly()
	e.deleting("rival")
	e.gone("rival")
	e.deleteClaims("only")
	e.asItWas(before)
}

// A pod may reference a claim that was generated for another pod. The kubelet prepares the claim only once, so the
// driver has to find the second pod by its spec. Even a container in the second pod that does not reference a claim
// starts with the interface.
func TestGeneratedClaimOfAnotherPod(t *testing.T) {
	e := newEnv(t, "generated")
	e.offerMacvlan("ge0", "10.229.0.0/24")
	before := e.state()
	e.observe()
	e.create(watchedPod("owner", "resourceClaimTemplateName: ge0", "net1"))
	e.ready("owner")
	name := *e.pod("owner").Status.ResourceClaimStatuses[0].ResourceClaimName
	e.create(watchedPod("debug", "resourceClaimName: "+name, "net1") +
		watchedContainer("sidecar", "debug", "[]", "net1"))
	e.ready("debug")
	addresses := map[string]string{}
	for _, pod := range []string{"owner", "debug"} {
		addresses[pod] = e.inPod(pod, "ip", "-4", "-o", "addr", "show", "dev", "net1")
		if !strings.Contains(addresses[pod], "inet 10.229.0.") {
			t.Errorf("want an address in 10.229.0.0/24 on net1 of pod %s, got\n%s", pod, addresses[pod])
		}
	}
	if addresses["owner"] == addresses["debug"] {
		t.Errorf("both pods have the same address:\n%s", addresses["owner"])
	}
	e.neverStartedEarly()
	e.deleting("debug")
	e.gone("debug")
	if shown := e.inPod("owner", "ip", "-4", "-o", "addr", "show", "dev", "net1"); shown != addresses["owner"] {
		t.Errorf("net1 of the owner changed after the other pod ended:\n%s", shown)
	}
	e.deleting("owner")
	e.gone("owner")
	e.asItWas(before)
}

func (e *env) deleteClaims(names ...string) {
	e.Helper()
	if output, err := e.kubectl("",
		append([]string{"delete", "resourceclaim", "--timeout=60s"}, names...)...); err != nil {
		e.Fatal(err, output)
	}
}

// The driver rejects mutually exclusive uses of a device even if both have been allocated, because an administrator can
// write any allocation.
func TestSchedulerBypassed(t *testing.T) {
	e := newEnv(t, "bypassed")
	e.veth("by0")
	e.apply(slowMacvlan)
	ways := map[string]string{"macvlan": "fast", "slow-macvlan": "slow", "host-device": "whole"}
	for plugin, name := range ways {
		policy := expose("by0-"+name, plugin, plugin != "host-device", "by0")
		policy = strings.Replace(policy, "supportedCNIPlugins", "deviceNameSuffix: -"+name+
			"\n    supportedCNIPlugins", 1)
		if plugin != "host-device" {
			policy = strings.Replace(policy, "supportedCNIPlugins", "exclusionGroup: handlers\n    supportedCNIPlugins",
				1)
		}
		e.apply(documents(policy, topology("by-"+name, fmt.Sprintf(`
- name: link
  type: %s
  selector: {cel: 'device.attributes["dra.networking"].ifName == "by0"'}
  config: {ipam: {type: host-local, subnet: 10.148.0.0/24}}`, plugin))))
	}
	e.offer("by0-fast", "by0-slow", "by0-whole")
	before := e.state()
	allocations := map[string]*resourceapi.AllocationResult{}
	for _, name := range ways {
		allocations[name] = e.allocationOf(name, "by-"+name+"-link")
	}
	for _, holder := range ways {
		e.claimWith("holder-"+holder, "by-"+holder+"-link", allocations[holder])
		e.ready("holder-" + holder)
		pods := []string{"holder-" + holder}
		for _, rival := range ways {
			if rival == holder && rival != "whole" {
				continue // claims may share the device
			}
			pods = append(pods, holder+"-"+rival)
			e.claimWith(holder+"-"+rival, "by-"+rival+"-link", allocations[rival])
		}
		for _, rival := range pods[1:] {
			e.event(rival, "while claim bypassed/holder-"+holder+" holds by0-"+holder)
		}
		e.deleting(pods...)
		e.gone(pods...)
		e.deleteClaims(pods...)
	}
	e.asItWas(before)
}

// allocationOf makes the scheduler allocate a device from a class, and returns the allocation.
func (e *env) allocationOf(name, class string) *resourceapi.AllocationResult {
	e.Helper()
	e.create(documents(sharedClaim(name, class), namedClaimPod(name)))
	var allocation *resourceapi.AllocationResult
	e.eventually("claim "+name+" is allocated", func(ctx context.Context) (bool, error) {
		claim, err := e.client.ResourceV1().ResourceClaims(e.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			allocation = claim.Status.Allocation
		}
		return allocation != nil, err
	})
	e.deleting(name)
	e.gone(name)
	e.deleteClaims(name)
	return allocation
}

// claimWith creates a claim with an allocation that does not come from the scheduler, and a pod with the same name that
// uses the claim and is bound to the node.
func (e *env) claimWith(name, class string, allocation *resourceapi.AllocationResult) {
	e.Helper()
	ctx := context.Background()
	e.create(sharedClaim(name, class))
	claims := e.client.ResourceV1().ResourceClaims(e.namespace)
	claim, err := claims.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	claim.Status.Allocation = allocation
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.create(strings.Replace(namedClaimPod(name), "spec:\n", "spec:\n  nodeName: "+e.cluster.NodeName()+"\n", 1))
}

// namedClaimPod returns a pod that uses the claim with the same name.
func namedClaimPod(name string) string {
	return strings.Replace(pod(name, name), "resourceClaimTemplateName", "resourceClaimName", 1)
}

// A policy's status reports the number of devices offered under the policy, including allocated devices. It reports
// zero once the policy selects no devices.
func TestPolicyCountsItsDevices(t *testing.T) {
	e := newEnv(t, "counted")
	e.veth("pc0")
	e.veth("pc1")
	e.apply(documents(expose("pc0", "macvlan", true, "pc0", "pc1"), expose("nothing", "macvlan", true, "nosuch"),
		topology("pc0", `
- name: link
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "pc0"'}
  config: {mode: bridge}`), claimTemplate("pc0", "pc0-link")))
	e.offers("pc0", "2 1 True")
	e.offers("nothing", "0 0 False")
	e.create(pod("one", "pc0"))
	e.ready("one")
	e.apply(expose("pc0", "macvlan", true, "nosuch"))
	e.offers("pc0", "0 0 False") // the pod's device is still published, but this policy no longer offers it
	e.deleting("one")
	e.gone("one")
}

// offers waits until a policy's status reports the given numbers of devices and nodes and the given condition.
func (e *env) offers(policy, want string) {
	e.Helper()
	e.eventually("policy "+policy+" offers "+want, func(context.Context) (bool, error) {
		output, err := e.kubectl("", "get", "dep", policy, "-o", `jsonpath={.status.devices} {.status.nodes} `+
			`{.status.conditions[?(@.type=="DevicesOffered")].status}`)
		return err == nil && output == want, fmt.Errorf("%w: %s", err, output)
	})
}
