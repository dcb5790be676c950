package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// slowMacvlan is a schema object for a plugin that has no built-in schema.
const slowMacvlan = `
apiVersion: networking.dra.io/v1alpha1
kind: CNIPluginSchema
metadata: {name: slow-macvlan}
spec:
  cniType: slow-macvlan
  deviceParameters: [{parameter: master, attribute: ifName}]
`

// stage is a chain that a test can pause or make fail. It has two steps: a whole link, followed by a slow macvlan
// interface.
type stage struct {
	controlled
	name   string
	before nodeState
}

// whole and second are the interfaces of a stage's pods.
const (
	whole  = "net1"
	second = "net2"
)

// stage creates a stage. Its links are named NAMEw and NAMEs.
func (e *env) stage(name string, network int, seconds float64) *stage {
	e.Helper()
	s := &stage{controlled: e.controlled(name), name: name}
	s.links()
	e.Cleanup(s.unlink)
	e.apply(slowMacvlan)
	e.apply(documents(expose(name+"w", "host-device", false, name+"w"),
		expose(name+"s", "slow-macvlan", true, name+"s"),
		topology(name, fmt.Sprintf(`
- name: whole
  type: host-device
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%[1]sw"'}
  config: {ipam: {type: host-local, subnet: 10.%[2]d.0.0/24}}
- name: late
  type: slow-macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%[1]ss"'}
  config: {seconds: %[3]v, control: %[4]s, ipam: {type: host-local, subnet: 10.%[2]d.1.0/24}}`, name, network,
			seconds, s.path)),
		claimTemplate(name, name+"-whole", name+"-late")))
	e.offer(name+"w", name+"s")
	s.before = e.state()
	return s
}

// links creates the stage's links. Like hardware, the links always have the same MAC addresses.
func (s *stage) links() {
	s.Helper()
	for _, link := range []string{s.name + "w", s.name + "s"} {
		if err := s.cluster.AddVeth(link, link+"p"); err != nil {
			s.Fatal(err)
		}
		for i, end := range []string{link, link + "p"} {
			address := fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", s.name[0], s.name[1], link[len(link)-1], i)
			if _, err := s.cluster.Exec(context.Background(), "ip", "link", "set", end, "address",
				address); err != nil {
				s.Fatal(err)
			}
		}
	}
}

// unlink removes the stage's links. A link may already be gone, because it disappears together with the network
// namespace of its peer.
func (s *stage) unlink() {
	for _, link := range []string{s.name + "wp", s.name + "sp"} {
		if err := s.cluster.DeleteLink(link); err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) {
			s.Error(err)
		}
	}
}

// pod creates a watched pod with both interfaces.
func (s *stage) pod(name string) {
	s.Helper()
	s.create(watchedPod(name, "resourceClaimTemplateName: "+s.name, whole, second))
}

// pluginRuns waits until the slow plugin is running. It polls often, because tests depend on exact timing.
func (s *stage) pluginRuns() {
	s.Helper()
	s.moment("the slow plugin runs", func() bool { return len(s.processes("slow-macvlan")) > 0 })
}

// moment waits for a condition that may be true only briefly.
func (e *env) moment(what string, reached func() bool) {
	e.Helper()
	for end := time.Now().Add(patience); !reached(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("timed out after %s: %s", patience, what)
		}
	}
}

// wrote waits until the CNI log for a pod's claim has a line that contains all texts.
func (s *stage) wrote(pod string, texts ...string) {
	s.Helper()
	s.moment(fmt.Sprintf("CNI log of pod %s with %q", pod, texts), func() bool {
		logs := s.filesOnNode("/var/log/dra-network", s.namespace+"_"+pod+"-net-*", "*.jsonl")
		if len(logs) == 0 {
			return false
		}
		for _, line := range s.lines(logs[len(logs)-1]) {
			if containsAll(line, texts) {
				return true
			}
		}
		return false
	})
}

// isPrepared reports whether a pod's claim is prepared.
func (s *stage) isPrepared(pod string) bool {
	claims, err := s.records(context.Background(), "claims")
	return err == nil &&
		slices.ContainsFunc(claims,
			func(claim json.RawMessage) bool { return strings.Contains(string(claim), `"`+pod+"-net-") })
}

// preparedOnly creates a pod whose claim the kubelet prepares, but which the kubelet cannot start: the runtime does not
// respond until resume is called. If the kubelet happens to call the runtime before it processes the pod, it waits two
// minutes for a response. In this case, preparedOnly retries with another pod.
func (s *stage) preparedOnly(pod string) (resume func()) {
	s.Helper()
	resume = s.resumed(string(s.cluster.RuntimeComponent()))
	for range 10 {
		s.signal(string(s.cluster.RuntimeComponent()), syscall.SIGSTOP)
		s.pod(pod)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			if s.isPrepared(pod) {
				return resume
			}
		}
		resume()
		s.deleting(pod)
		s.gone(pod)
	}
	s.Fatalf("in ten attempts, the kubelet called the runtime before it prepared pod %s", pod)
	return nil
}
