package kerneltest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
)

// fiveSteps is a chain with three roots of different kinds, one step that modifies a device, and one step that affects
// the host.
const fiveSteps = `
- {name: hd, type: host-device, selector: {cel: "true"}, config: {ipam: {type: host-local, dataDir: LEASES, ranges: [[{subnet: 10.1.0.0/24}]]}}}
- {name: mv, type: macvlan, selector: {cel: "true"}, config: {mode: bridge, ipam: {type: host-local, dataDir: LEASES, ranges: [[{subnet: 10.2.0.0/24}]]}}}
- {name: br, type: bridge, selector: {cel: "true"}, config: {ipam: {type: host-local, dataDir: LEASES, ranges: [[{subnet: 10.3.0.0/24}]]}}}
- {name: tune, type: tuning, dependOn: [hd], config: {mtu: 1400, mac: "02:00:00:00:77:77"}}
- {name: limit, type: bandwidth, dependOn: [br], config: {ingressRate: 1000000, ingressBurst: 100000, egressRate: 1000000, egressBurst: 100000}}
`

// sweep is a machine with three devices and one pod, where the test kills driver processes.
type sweep struct {
	testHost
	orders orders
	before []string
	points int
}

func newSweep(t *testing.T) *sweep {
	plugins := cnitest.RealPlugins(t)
	dir := t.TempDir()
	s := &sweep{testHost: testHost{T: t,
		dirs: []string{"/run/netns", "/var/lib/cni", "/run/cni", filepath.Join(dir, "leases")}}}
	s.veth("up0", "sw0")
	s.veth("up1", "sw1")
	s.bridge("br0")
	pod := cnitest.NewPod(t, "pod")
	s.pods = []string{pod}
	device := func(step, link, plugin string, exclusive bool) cnichain.RootDevice {
		return cnichain.RootDevice{Step: step, Device: cnichain.Device{Name: link, IfName: link, Exclusive: exclusive,
			CNIs: []string{plugin}}}
	}
	s.orders = orders{
		Dir: dir, CNIDirs: []string{plugins}, Topology: strings.ReplaceAll(fiveSteps, "LEASES",
			filepath.Join(dir, "leases")),
		Devices: []cnichain.RootDevice{device("hd", "up0", "host-device", true), device("mv", "up1", "macvlan", false),
			device("br", "br0", "bridge", false)},
		Sandbox: "sandbox", Pod: pod,
	}
	s.run(orders{Add: true, Del: true}) // loads the modules for tuning and bandwidth, which stay loaded
	s.before = s.state()
	return s
}

// process prepares a driver process without starting it.
func (s *sweep) process(o orders) *exec.Cmd {
	s.Helper()
	all := s.orders
	all.Recover, all.Add, all.Del, all.KillAt = o.Recover, o.Add, o.Del, o.KillAt
	encoded, err := json.Marshal(all)
	s.must(err)
	cmd := exec.Command("/proc/self/exe")
	// By default, the race detector sleeps 1 s at every exit.
	cmd.Env = append(os.Environ(), workerVariable+"="+string(encoded), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// run runs a driver process until it exits.
func (s *sweep) run(o orders) {
	s.Helper()
	if output, err := s.process(o).CombinedOutput(); err != nil {
		s.Fatalf("driver process %+v at point %s: %v\n%s", o, s.last(), err, output)
	}
}

// last returns the last kill point that was passed.
func (s *sweep) last() string {
	data, err := os.ReadFile(filepath.Join(s.orders.Dir, "points"))
	s.must(err)
	return string(data)
}

// kill runs a driver process that must die at a kill point, and reports whether it reached that point.
func (s *sweep) kill(o orders) bool {
	s.Helper()
	cmd := s.process(o)
	output, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		s.Fatalf("driver process %+v failed instead of being killed: %v\n%s", o, err, output)
	}
	return true
}

// killedAt runs a driver process with the given orders once for each kill point, and kills it there. before is called
// before each run.
func (s *sweep) killedAt(name string, before func(), killed orders) {
	s.Helper()
	for point := 1; ; point++ {
		before()
		killed.KillAt = point
		if !s.kill(killed) {
			s.Logf("%s: %d kill points", name, point-1)
			s.points += point - 1
			s.clean(name + " to its end")
			return
		}
		s.clean(fmt.Sprintf("%s, killed at %s", name, s.last()))
		if s.Failed() {
			s.FailNow()
		}
	}
}

// clean starts the next driver process and checks that everything is in its original state and that the devices work.
func (s *sweep) clean(what string) {
	s.Helper()
	s.run(orders{Recover: true})
	s.expect(what, s.before)
	s.run(orders{Add: true, Del: true})
	s.expect(what+", then attached and detached", s.before)
}

// A driver process is killed before and after each of its actions while it attaches, detaches, and rolls back the
// attachments of an earlier process. The next process leaves nothing behind.
func TestSweep(t *testing.T) {
	if !cnitest.OnMachine(t) {
		return
	}
	s := newSweep(t)
	s.killedAt("ADD", func() {}, orders{Add: true})
	s.killedAt("DEL", func() { s.run(orders{Add: true}) }, orders{Del: true})
	// At the second-to-last kill point of ADD, everything is attached but not ready, so the amount of state to roll
	// back is at its maximum.
	last := s.addPoints() - 1
	s.killedAt("recovery", func() {
		if !s.kill(orders{Add: true, KillAt: last}) {
			t.Fatal("ADD had fewer kill points than in the previous run")
		}
	}, orders{Recover: true})
	if s.points < 40 {
		t.Errorf("there were only %d kill points; check that every action is wrapped", s.points)
	}
	fmt.Printf("kill points: %d\n", s.points)
}

// addPoints counts the kill points of an ADD.
func (s *sweep) addPoints() int {
	s.run(orders{Add: true})
	points := 0
	_, err := fmt.Sscan(s.last(), &points)
	s.must(err)
	s.run(orders{Recover: true})
	return points
}
