package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dra-networking/dra-network-driver/e2e/internal/capability"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

var tryPrivileges = flag.String("privileges", "", "capabilities to take from the driver, with commas, or "+
	"\"documented\": "+
	"each that docs/security.md names")

// without is the path of the program that drops capabilities, in the driver's container and on the node.
const without = "/opt/cni/bin/without"

// capabilityRow matches a row in the table in docs/security.md: a capability, and the features that break without it.
var capabilityRow = regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| (.*) \\|$")

// TestPrivileges runs the driver without each of the capabilities listed in docs/security.md, one at a time, and checks
// whether it still attaches and detaches pods. Then it removes all unneeded capabilities together. The results must
// match those in docs/security.md.
func TestPrivileges(t *testing.T) {
	if *tryPrivileges == "" {
		t.Skip("takes minutes; run make privileges")
	}
	e := newEnv(t, "privileges")
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	e.prepareProbe()
	t.Cleanup(e.restorePrivileges)
	e.takePrivileges(nil)
	if broken := e.probe(); broken != nil {
		t.Fatalf("the driver failed with all capabilities: %v", broken)
	}
	var needed []string
	for _, row := range capabilityRow.FindAllStringSubmatch(string(page), -1) {
		if *tryPrivileges != "documented" && !slices.Contains(strings.Split(*tryPrivileges, ","), row[1]) {
			continue
		}
		broken := e.tryWithout(row[1])
		t.Logf("| `%s` | %v |", row[1], broken)
		if documented := row[2] != "nothing that was tried"; documented != (broken != nil) {
			t.Errorf("without %s, the failure is %v, but docs/security.md says: %s", row[1], broken, row[2])
		}
		if broken != nil {
			needed = append(needed, row[1])
		}
	}
	if *tryPrivileges != "documented" {
		return
	}
	if len(needed) == 0 {
		t.Fatal("no capability was needed, so the test probably dropped none")
	}
	rest := slices.DeleteFunc(capability.Names(), func(name string) bool { return slices.Contains(needed, name) })
	if broken := e.tryWithout(rest...); broken != nil {
		t.Errorf("with only capabilities %v, the driver failed: %v", needed, broken)
	}
}

// prepareProbe creates a link that pods share and a link that is moved into a pod, together with their policies and
// topologies.
func (e *env) prepareProbe() {
	e.Helper()
	program := filepath.Join(e.TempDir(), "without")
	build := exec.CommandContext(e.Context(), "go", "build", "-o", program, "../cmd/without")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		e.Fatalf("cannot build the program that drops capabilities: %v\n%s", err, output)
	}
	e.install(program, without)
	e.veth("pr0")
	e.veth("pr1")
	e.apply(documents(expose("pr0", "macvlan", true, "pr0"), expose("pr1", "host-device", false, "pr1"),
		topology("pr", `
- name: uplink
  type: macvlan
  selector: {cel: 'device.attributes["dra.networking"].ifName == "pr0"'}
  config: {mode: bridge, ipam: {type: host-local, subnet: 10.177.0.0/24}}
- name: link
  type: host-device
  selector: {cel: 'device.attributes["dra.networking"].ifName == "pr1"'}
- name: tune
  type: tuning
  dependOn: [uplink]
  config: {mtu: 1402, promisc: true, sysctl: {net.ipv4.conf.IFNAME.arp_notify: "1"}}`),
		claimTemplate("pr", "pr-uplink", "pr-link")))
	e.offer("pr0", "pr1")
}

// tryWithout returns the first failure that occurs when the driver runs without the given capabilities.
func (e *env) tryWithout(names ...string) error {
	e.Helper()
	e.takePrivileges(names)
	return e.probe()
}

// takePrivileges restarts the driver with a wrapper program that drops capabilities.
func (e *env) takePrivileges(names []string) {
	e.Helper()
	command := "null"
	if len(names) > 0 {
		command = fmt.Sprintf(`[%q, %q, "/%s"]`, without, strings.Join(names, ","), stack.Driver)
	}
	patch := fmt.Sprintf(`{"spec": {"template": {"metadata": {"annotations": {"without": %q}},
		"spec": {"containers": [{"name": "driver", "command": %s}]}}}}`, strings.Join(names, ","), command)
	if output, err := e.kubectl("", "-n", stack.Namespace, "patch", "daemonset", stack.Driver, "-p",
		patch); err != nil {
		e.Fatal(err, output)
	}
}

func (e *env) restorePrivileges() {
	e.takePrivileges(nil)
	if output, err := e.kubectl("", "-n", stack.Namespace, "rollout", "status", "daemonset/"+stack.Driver,
		"--timeout=80s"); err != nil {
		e.Error(err, output)
	}
	e.onNode("rm", without)
}

// probe waits for the driver, starts a pod with both interfaces, deletes the pod, and waits until the link is returned.
// It returns the first failure.
func (e *env) probe() error {
	e.Helper()
	if output, err := e.kubectl("", "-n", stack.Namespace, "rollout", "status", "daemonset/"+stack.Driver,
		"--timeout=40s"); err != nil {
		log, _ := e.kubectl("", "-n", stack.Namespace, "logs", "daemonset/"+stack.Driver, "--tail=3")
		return fmt.Errorf("the driver did not become ready: %s\n%s", strings.TrimSpace(output), log)
	}
	e.create(pod("p", "pr"))
	broken := e.within("the pod is not ready", func(ctx context.Context) (bool, error) {
		found, err := e.client.CoreV1().Pods(e.namespace).Get(ctx, "p", metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(found.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}), errors.Join(err, e.lastEvent("p"))
	})
	if broken != nil {
		broken = errors.Join(broken, e.driverSays())
	}
	e.deleting("p")
	ended := e.within("the pod does not end, or its link does not come back", func(ctx context.Context) (bool, error) {
		_, gone := e.client.CoreV1().Pods(e.namespace).Get(ctx, "p", metav1.GetOptions{})
		_, err := e.cluster.Exec(ctx, "ip", "link", "show", "pr1")
		return gone != nil && err == nil, errors.Join(err, e.lastEvent("p"))
	})
	if broken == nil {
		broken = ended
	}
	if broken != nil { // clean up before the next check
		e.takePrivileges(nil)
		e.gone("p")
		e.driverReady()
	}
	return broken
}

// driverSays returns the end of the driver's log.
func (e *env) driverSays() error {
	log, err := e.kubectl("", "-n", stack.Namespace, "logs", "daemonset/"+stack.Driver, "--tail=2")
	return errors.Join(err, errors.New(log))
}

// within waits for a condition for up to 30 seconds, which is much longer than a successful operation takes.
func (e *env) within(what string, condition func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextTimeout(e.Context(), 200*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (done bool, err error) {
			done, last = condition(ctx)
			return done, nil
		})
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, errors.Join(last, err))
}

// lastEvent returns the most recent warning event for a pod.
func (e *env) lastEvent(name string) error {
	events, err := e.client.CoreV1().Events(e.namespace).List(context.Background(),
		metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.name=" + name})
	if err != nil {
		return err
	}
	// The local cluster has no DNS.
	items := slices.DeleteFunc(events.Items, func(e corev1.Event) bool { return e.Reason == "MissingClusterDNS" })
	if len(items) == 0 {
		return nil
	}
	newest := slices.MaxFunc(items, func(a, b corev1.Event) int {
		return a.LastTimestamp.Compare(b.LastTimestamp.Time)
	})
	return errors.New(newest.Message)
}
