package suite

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// Two topologies use addresses from one range. The node is assigned blocks as its pods need them. When all blocks are
// allocated, the range's status and an event for the waiting pod report that the range is exhausted. The pod starts
// once another pod terminates. Pods keep their addresses when the driver is killed.
func TestAddressRange(t *testing.T) {
	e := newEnv(t, "ranges")
	e.veth("ar0")
	e.create(`
apiVersion: networking.dra.io/v1alpha1
kind: AddressRange
metadata: {name: storage}
spec: {cidrs: [10.190.0.0/29, "fd00:190::/125"], blockSize: 4, returnDelay: 1m}
`)
	// The range is deleted only once its blocks have been returned. Other tests do not have to wait for the deletion.
	t.Cleanup(func() { e.must("kubectl", "delete", "addressrange", "storage", "--ignore-not-found", "--wait=false") })
	objects := []string{expose("ar0", "macvlan", true, "ar0")}
	for _, name := range []string{"ar-left", "ar-right"} {
		objects = append(objects, topology(name, `
- name: uplink
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "ar0"'}
  addressRange: storage
  config: {mode: bridge, ipam: {type: host-local}}`), claimTemplate(name, name+"-uplink"))
	}
	e.apply(documents(objects...))
	e.offer("ar0")
	e.rangeSays("BlocksAssigned=True Assigned")
	before := e.state()
	// The first block provides .2 and .3, and the second provides .4 to .6.
	addresses := map[string]string{}
	for i := range 5 {
		name := fmt.Sprintf("pod%d", i)
		e.create(pod(name, []string{"ar-left", "ar-right"}[i%2]))
		e.ready(name)
		shown := e.inPod(name, "ip", "-o", "addr", "show", "dev", "net1")
		if !containsAll(shown, []string{"/29 brd", "inet6 fd00:190::"}) {
			t.Errorf("pod %s has unexpected addresses:\n%s", name, shown)
		}
		address := strings.Split(strings.Fields(shown)[3], "/")[0]
		if other, duplicate := addresses[address]; duplicate {
			t.Errorf("pods %s and %s both have the address %s", name, other, address)
		}
		addresses[address] = name
	}
	for address, name := range addresses {
		if name != "pod0" {
			e.reaches("pod0", "net1", address)
		}
	}
	e.rangeSays("BlocksAssigned=False Exhausted", "nodes with few or no addresses left: ")
	e.eventually("an event reports that the range is exhausted", func(context.Context) (bool, error) {
		output, err := e.kubectl("", "-n", "default", "get", "events", "--field-selector",
			"involvedObject.kind=AddressRange,involvedObject.name=storage")
		return err == nil && containsAll(output, []string{"Exhausted", "all 2 blocks are assigned"}),
			fmt.Errorf("%v: %s", err, output) //nolint:errorlint // there may be no error
	})
	e.create(pod("last", "ar-left"))
	e.event("last", "use all 5 addresses of its blocks of AddressRange storage (storage-0, storage-1)")
	e.signal(stack.Driver, syscall.SIGKILL)
	e.driverReady()
	e.deleting("pod3")
	e.gone("pod3")
	e.ready("last")
	for address, name := range addresses {
		if name == "pod3" {
			name = "last"
		}
		shown := e.inPod(name, "ip", "-4", "-o", "addr", "show", "dev", "net1")
		if !strings.Contains(shown, address+"/") {
			t.Errorf("addresses of pod %s are\n%s, want %s", name, shown, address)
		}
	}
	pods := []string{"pod0", "pod1", "pod2", "pod4", "last"}
	e.deleting(pods...)
	e.gone(pods...)
	e.asItWas(before)
	e.must("kubectl", "delete", "addressrange", "storage", "--wait=false")
	e.rangeSays("BlocksAssigned=False Deleted", "2 remaining blocks")
}

// rangeSays waits until the range has a condition, given as "Type=Status Reason", whose message contains all texts.
func (e *env) rangeSays(condition string, texts ...string) {
	e.Helper()
	e.eventually("the AddressRange has "+condition, func(context.Context) (bool, error) {
		output, err := e.kubectl("", "get", "addressrange", "storage", "-o",
			`jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}`)
		for line := range strings.Lines(output) {
			if strings.HasPrefix(line, condition) && containsAll(line, texts) {
				return true, nil
			}
		}
		return false, fmt.Errorf("%v: %s", err, output) //nolint:errorlint // there may be no error
	})
}
