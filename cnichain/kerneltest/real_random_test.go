package kerneltest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// These are environment variables, since tests run in separate processes. KERNELTEST_RUNS is the number of random
// tenants and random administrators for each plugin; if it is not set, the tests run for a few seconds. KERNELTEST_SEED
// makes the tests repeat the decisions of an earlier run.
const (
	runsVariable = "KERNELTEST_RUNS"
	seedVariable = "KERNELTEST_SEED"
)

// rounds calls a function repeatedly, passing it the run number and a source of random decisions, for the requested
// number of runs. If no number is requested, it stops after a few seconds.
func (l *realLab) rounds(do func(run int, random *rand.Rand)) {
	l.Helper()
	seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	l.Logf("repeat with %s=%d", seedVariable, seed)
	random := rand.New(rand.NewPCG(seed, seed))
	runs, limited := strconv.Atoi(os.Getenv(runsVariable))
	deadline := time.Now().Add(7 * time.Second)
	run := 0
	for ; !l.Failed() && (limited == nil && run < runs || limited != nil && time.Now().Before(deadline)); run++ {
		do(run, random)
	}
	l.Logf("%d runs", run)
}

// tenantActions returns the random tenant's actions: operations with effects that survive a move, and operations that
// hide the device.
func tenantActions(nested string) map[string]func(tenant) error {
	actions := operations()
	inNested := func(do func(t tenant, namespace netns.NsHandle) error) func(tenant) error {
		return func(t tenant) error {
			namespace, err := netns.GetFromPath(nested)
			if err != nil {
				return err
			}
			defer func() { _ = namespace.Close() }()
			return do(t, namespace)
		}
	}
	actions["macvlan in another namespace"] = inNested(func(t tenant, namespace netns.NsHandle) error {
		return netlink.LinkAdd(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE, LinkAttrs: netlink.LinkAttrs{
			Name: "spy", ParentIndex: t.link.Attrs().Index, Namespace: netlink.NsFd(namespace)}})
	})
	actions["moved to another namespace"] = inNested(func(t tenant, namespace netns.NsHandle) error {
		return netlink.LinkSetNsFd(t.link, int(namespace))
	})
	actions["moved there and back"] = inNested(func(t tenant, namespace netns.NsHandle) error {
		pod, err := netns.GetFromPath(t.path)
		if err != nil {
			return err
		}
		defer func() { _ = pod.Close() }()
		if err := netlink.LinkSetNsFd(t.link, int(namespace)); err != nil {
			return err
		}
		handle, err := netlink.NewHandleAt(namespace)
		if err != nil {
			return err
		}
		defer handle.Close()
		links, err := handle.LinkList()
		for _, link := range links {
			if link.Type() == "veth" {
				err = errors.Join(err, handle.LinkSetNsFd(link, int(pod)))
			}
		}
		return err
	})
	actions["pair like the device"] = func(tenant) error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "net1"}, PeerName: "impostor"})
	}
	actions["name"] = func(t tenant) error {
		return errors.Join(netlink.LinkSetDown(t.link), netlink.LinkSetName(t.link, "docker0"))
	}
	return actions
}

// anyLink returns a link for the tenant to modify: its device, or a link that it has created.
func anyLink() (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		if link.Type() == "veth" && link.Attrs().Name != "eth0" {
			return link, nil
		}
	}
	return nil, errors.New("the pod no longer has a device")
}

// A tenant performs random actions for a while, and its pod is terminated in a randomly chosen way. Afterwards, the
// kernel reports the same device state as before, or the device is quarantined until nothing holds it any longer.
func TestRealRandomTenant(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for _, mover := range movers() {
		t.Run(mover, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			l.rounds(func(run int, random *rand.Rand) { l.randomTenant(mover, run, random) })
		})
	}
}

func (l *realLab) randomTenant(mover string, run int, random *rand.Rand) {
	l.Helper()
	const nested = "/run/netns/nested"
	l.must(host.NewNamespace(nested))
	before := l.linkState("up0")
	a := l.pod(fmt.Sprintf("t%d", run), l.plan("first", moving(mover), l.exclusive("link", "up0")))
	a.add()
	actions := tenantActions(nested)
	names := slices.Sorted(maps.Keys(actions))
	var done []string
	act := func() {
		name := names[random.IntN(len(names))]
		done = append(done, name)
		_, _ = inNamespace(a.path, func() (struct{}, error) {
			link, err := anyLink()
			if err != nil {
				return struct{}{}, err
			}
			return struct{}{}, actions[name](tenant{a, link})
		})
	}
	for range 1 + random.IntN(12) {
		act()
	}
	ending := []string{"normally", "by force", "with its namespace"}[random.IntN(3)]
	returned := error(nil)
	switch ending {
	case "normally":
		returned = a.tryDel()
	case "by force": // the containers continue to run
		stop, wait := make(chan struct{}), sync.WaitGroup{}
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					act()
				}
			}
		})
		returned = a.tryDel()
		close(stop)
		wait.Wait()
	case "with its namespace":
		a.end()
		l.must(host.Linux{}.Unpin(a.attachment.Pin))
		l.must(host.Linux{}.Unpin(nested))
		returned = a.tryDel()
	}
	if returned == nil && len(l.executor.Leftovers()) == 0 {
		l.sameOrGone(before, done, ending)
	}
	a.end()
	l.must(host.Linux{}.Unpin(nested))
	l.await("the device is returned", func() bool { return a.tryDel() == nil && l.retryLeftovers() == nil })
	l.empty()
	l.sameOrGone(before, done, ending)
	a.awaitGone()
	l.pods = nil
	if _, err := netlink.LinkByName("up0"); err != nil {
		l.drop("up0p")
		l.uplink("up0")
		l.restart(nil)
	}
}

// retryLeftovers tries again to return the quarantined devices.
func (l *realLab) retryLeftovers() error {
	var problems []error
	for _, leftover := range l.executor.Leftovers() {
		problems = append(problems, l.executor.Retry(l.Context(), leftover.Key))
	}
	return errors.Join(problems...)
}

// sameOrGone expects the device either to be in its original state or to be gone. If it is gone, its other end must be
// gone, too.
func (l *realLab) sameOrGone(before map[string][]byte, done []string, ending string) {
	l.Helper()
	if _, err := netlink.LinkByName("up0p"); err != nil {
		return
	}
	if _, err := netlink.LinkByName("up0"); err != nil {
		l.Errorf("the pod ended %s after %q; the driver reported that the device was returned, but the host has no up0",
			ending, done)
		return
	}
	if differences := l.linkState("up0").Differences(before); len(differences) > 0 {
		l.Errorf("the pod ended %s after %q; the next tenant inherits: %v", ending, done, differences)
	}
}

// administratorActions returns actions that change a link without using it.
func administratorActions(random *rand.Rand) map[string]func(netlink.Link) error {
	return map[string]func(netlink.Link) error{
		"MTU":   func(link netlink.Link) error { return netlink.LinkSetMTU(link, 1300+random.IntN(200)) },
		"alias": func(link netlink.Link) error { return netlink.LinkSetAlias(link, fmt.Sprint(random.IntN(100))) },
		"alternative name": func(link netlink.Link) error {
			return netlink.LinkAddAltName(link, fmt.Sprint("rack", random.IntN(100)))
		},
		"queue length": func(link netlink.Link) error { return netlink.LinkSetTxQLen(link, 1+random.IntN(100)) },
		"group":        func(link netlink.Link) error { return netlink.LinkSetGroup(link, 1+random.IntN(100)) },
		"address": func(link netlink.Link) error {
			return netlink.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 1, 1, byte(random.IntN(256))})
		},
		"feature": func(link netlink.Link) error {
			return setFeatures(link.Attrs().Name, map[string]bool{"tx-tcp-segmentation": random.IntN(2) == 0})
		},
		"no ARP": netlink.LinkSetARPOff,
		"ARP":    netlink.LinkSetARPOn,
		"nothing": func(netlink.Link) error {
			return nil
		},
	}
}

// An administrator changes and uses a link whenever it is on the host. A link that is in use is never attached to a
// pod, and none of the administrator's configuration is lost.
func TestRealRandomAdministrator(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	for _, mover := range movers() {
		t.Run(mover, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			l.executor.CheckFree = l.checkFree
			plan := l.plan("first", moving(mover), l.exclusive("link", "up0"))
			l.rounds(func(run int, random *rand.Rand) {
				done := l.randomAdministrator(random)
				used := ""
				if uses := nodeUses(); random.IntN(3) == 0 {
					used = slices.Sorted(maps.Keys(uses))[random.IntN(len(uses))]
					l.onHost("up0", netlink.LinkSetARPOn) // needed for neighbors
					l.onHost("up0", func(link netlink.Link) error { return uses[used](l, link) })
				}
				before, state := l.linkState("up0"), l.state()
				a := l.pod(fmt.Sprintf("t%d", run), plan)
				err := a.tryAdd()
				if (err == nil) != (used == "") {
					l.Errorf("after %q, with the link used by %q, ADD returned %v", done, used, err)
				}
				a.del()
				a.end()
				a.awaitGone()
				l.pods = nil
				l.expect(without(state, "/run/cni/netdev/lock"))
				if differences := l.linkState("up0").Differences(before); len(differences) > 0 {
					l.Errorf("after %q and use by %q, the administrator's link differs: %v", done, used, differences)
				}
				if used != "" { // unless it is a rule or a filter, the use disappears along with the link
					_ = netlink.RuleDel(useRule("up0"))
					unusedByFilters()
					l.drop("up0p")
					l.drop("br7")
					l.uplink("up0")
					plan = l.plan("first", moving(mover), l.exclusive("link", "up0"))
				}
			})
		})
	}
}

// randomAdministrator performs some random actions. It never changes both the MAC address and the index, so that the
// link can still be identified.
func (l *realLab) randomAdministrator(random *rand.Rand) (done []string) {
	l.Helper()
	actions := administratorActions(random)
	names := slices.Sorted(maps.Keys(actions))
	for range random.IntN(4) {
		name := names[random.IntN(len(names))]
		done = append(done, name)
		l.onHost("up0", func(link netlink.Link) error {
			if err := actions[name](link); err != nil {
				l.Logf("%s: %v", name, err)
			}
			return nil
		})
	}
	return done
}
