package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/e2e/internal/oldest"
	"github.com/dra-networking/dra-network-driver/e2e/internal/testcluster"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// Image tags for both versions.
const (
	oldTag = "old"
	newTag = "new"
)

// upgrade is the test's own cluster, which initially runs the oldest version from which upgrades are supported.
type upgrade struct {
	*stage
	old  oldest.Version
	helm string
}

// TestUpgrade upgrades the oldest supported version as described in docs/howto.md, while some pods have their
// interfaces and another pod is being attached. The new driver is killed during the upgrade. Pods keep their
// interfaces, and the new version removes the resources that the old version created.
func TestUpgrade(t *testing.T) {
	u := newUpgrade(t)
	pods := u.oldPods()
	release := u.set("ADD")
	u.pod("halfway")
	u.pluginRuns()
	before := u.attached(pods)
	u.socketIsRead(pods)

	u.replace()
	u.driverReady()
	if diff := cmp.Diff(before, u.attached(pods)); diff != "" {
		t.Errorf("the upgrade changed the containers or interfaces of pods (-before +after):\n%s", diff)
	}
	release()
	u.ready("halfway")
	pods = append(pods, "halfway")
	u.socketIsRead(pods)
	u.healthy("the node after the upgrade")

	for _, pod := range pods {
		u.containerIsKilled(pod)
	}
	u.create(watchedPod("later", "resourceClaimTemplateName: up1", "net1"))
	u.ready("later")
	pods = append(pods, "later")
	u.neverStartedEarly()
	u.deleting(pods...)
	u.gone(pods...)
	u.deleteClaims("both")
	u.asItWas(u.before)
	for _, release := range []struct{ bin, output string }{{u.old.Bin, "nothing"}, {"../../bin", "no failed cleanups"}} {
		if left, err := u.netdraOf(release.bin, "release"); err != nil || !strings.Contains(left, release.output) {
			t.Errorf("%s/netdra release returned an unexpected result: %v\n%s", release.bin, err, left)
		}
	}
	u.healthy("the node afterwards")
}

// newUpgrade starts a cluster and installs the old version.
func newUpgrade(t *testing.T) *upgrade {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: starts a local Kubernetes cluster in private namespaces")
	}
	clone, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	u := &upgrade{helm: filepath.Join(clone, "bin/tools/helm")}
	if _, err := os.Stat(u.helm); err != nil {
		t.Skip("needs Helm; run make bin/tools/helm")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cache, err := lab.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	u.old, err = oldest.Build(ctx, clone, cache, oldest.Commit)
	if errors.Is(err, oldest.ErrNoHistory) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	cluster, client := testcluster.ForTest(t, func(ctx context.Context) (*lab.Cluster, kubernetes.Interface, error) {
		return up(ctx, *clusterName+"-upgrade")
	})
	u.install(t, cluster, client)
	return u
}

// install installs the old version, imports the images for both versions into the node, and publishes devices.
func (u *upgrade) install(t *testing.T, cluster *lab.Cluster, client kubernetes.Interface) {
	t.Helper()
	for tag, bin := range map[string]string{oldTag: u.old.Bin, newTag: "../../bin"} {
		images, err := stack.Pack(bin, filepath.Join(t.TempDir(), tag), tag)
		if err == nil {
			err = cluster.ImportImages(context.Background(), images...)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	e := &env{T: t, cluster: cluster, client: client, namespace: "upgrade"}
	e.must("kubectl", "create", "namespace", stack.Namespace)
	e.must("kubectl", "label", "namespace", stack.Namespace, "pod-security.kubernetes.io/enforce=privileged")
	e.must(append([]string{u.helm, "install", "dra-network", u.old.Deploy + "/chart", "--namespace", stack.Namespace,
		"--wait", "--timeout=60s"}, tags(oldTag)...)...)
	e = newEnvOn(t, cluster, client, e.namespace)
	e.veth("up0")
	e.apply(documents(expose("up0", "netdev", false, "up0"), topology("up0", `
- name: link
  type: netdev
  selector: {cel: 'device.attributes["dra.networking"].ifName == "up0"'}
  config: {ipam: {type: host-local, subnet: 10.170.0.0/24}}`), claimTemplate("up0", "up0-link")))
	e.offer("up0")
	e.offerMacvlan("up1", "10.171.0.0/24")
	u.stage = e.stage("ug", 172, 0)
	u.observe()
}

// tags returns the chart settings that select the images with the given tag.
func tags(tag string) []string {
	return []string{"--set", "node.image.tag=" + tag, "--set", "controller.image.tag=" + tag}
}

// oldPods creates pods that the old version attaches: one with a whole link, one with an interface on a shared link,
// and two that share a claim. It returns their names.
func (u *upgrade) oldPods() []string {
	u.Helper()
	u.create(documents(sharedClaim("both", "up1-uplink"),
		watchedPod("whole", "resourceClaimTemplateName: up0", "net1"),
		watchedPod("shared", "resourceClaimTemplateName: up1", "net1"),
		watchedPod("first", "resourceClaimName: both", "net1"),
		watchedPod("second", "resourceClaimName: both", "net1")))
	pods := []string{"whole", "shared", "first", "second"}
	u.ready(pods...)
	return pods
}

// attached returns the pods' containers, and their interfaces with addresses.
func (u *upgrade) attached(pods []string) map[string]string {
	u.Helper()
	all := map[string]string{}
	for _, name := range pods {
		pod := u.env.pod(name)
		all[name] = fmt.Sprintf("pod %s\n%s", pod.UID, u.interfaces(name))
		for _, status := range pod.Status.ContainerStatuses {
			all[name] += fmt.Sprintf("\ncontainer %s, restarts %d", status.ContainerID, status.RestartCount)
		}
	}
	return all
}

// interfaces returns a pod's interfaces, as printed by ip.
func (u *upgrade) interfaces(pod string) string {
	u.Helper()
	return u.inPod(pod, "ip", "-o", "link", "show") + u.inPod(pod, "ip", "-4", "-o", "addr", "show")
}

// socketIsRead checks that both versions of netdra can read from the node socket.
func (u *upgrade) socketIsRead(pods []string) {
	u.Helper()
	for _, bin := range []string{u.old.Bin, "../../bin"} {
		claims, err := u.netdraOf(bin, "claims")
		if err != nil {
			u.Errorf("%s/netdra claims failed: %v\n%s", bin, err, claims)
		}
		for _, pod := range pods {
			if !slices.ContainsFunc(strings.Split(claims, "\n"), func(line string) bool {
				return containsAll(line, []string{" " + u.namespace + "/" + pod + " ", " attached ", " net1 10.17"})
			}) {
				u.Errorf("%s/netdra claims did not report pod %s as attached:\n%s", bin, pod, claims)
			}
		}
		devices, err := u.netdraOf(bin, "devices")
		if err != nil || !containsAll(devices, []string{"up0", "up1", "(pod upgrade/whole)"}) {
			u.Errorf("%s/netdra devices returned an unexpected result: %v\n%s", bin, err, devices)
		}
	}
}

// replace upgrades the driver as described in docs/howto.md. It kills the new driver as soon as it runs, and again
// after it has read the journal.
func (u *upgrade) replace() {
	u.Helper()
	clone, err := filepath.Abs("../..")
	if err != nil {
		u.Fatal(err)
	}
	known := u.processes(stack.Driver)
	u.must("kubectl", "apply", "--server-side", "--force-conflicts", "-f", clone+"/deploy/crds")
	u.must(append([]string{u.helm, "upgrade", "dra-network", clone + "/deploy/chart", "--namespace", stack.Namespace,
		"--reset-then-reuse-values"}, tags(newTag)...)...)
	known = append(known, u.killNew(known, "runs", func() bool { return true }))
	u.killNew(known, "answers", func() bool {
		_, err := u.records(context.Background(), "claims")
		return err == nil
	})
	for _, workload := range stack.Workloads() {
		u.must("kubectl", "-n", stack.Namespace, "rollout", "status", workload, "--timeout=90s")
	}
	u.eventually("only the new version runs", func(context.Context) (bool, error) {
		images, err := u.kubectl("", "-n", stack.Namespace, "get", "pods", "-o",
			"jsonpath={.items[*].spec.containers[*].image}")
		return err == nil && !strings.Contains(images, ":"+oldTag) &&
			strings.Contains(images, stack.Driver+":"+newTag) &&
			strings.Contains(images, stack.Controller+":"+newTag), fmt.Errorf("images are %q, %w", images, err)
	})
}

// killNew kills the driver process that is not in known as soon as that process has reached a given state. It returns
// the process ID.
func (u *upgrade) killNew(known []int, moment string, reached func() bool) int {
	u.Helper()
	var process int
	u.moment("the new driver "+moment, func() bool {
		now := u.processes(stack.Driver)
		if len(now) != 1 || slices.Contains(known, now[0]) || !reached() {
			return false
		}
		process = now[0]
		return true
	})
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		u.Fatal(err)
	}
	return process
}

// containerIsKilled kills a pod's container, and checks that the container restarts with the same interfaces.
func (u *upgrade) containerIsKilled(pod string) {
	u.Helper()
	before := u.interfaces(pod)
	for _, pid := range u.containersOf(pod) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			u.Fatal(err)
		}
	}
	u.eventually("the container of pod "+pod+" has started again", func(context.Context) (bool, error) {
		status := u.env.pod(pod).Status.ContainerStatuses[0]
		return status.RestartCount == 1 && status.Ready, fmt.Errorf("the pod's status is %+v", status)
	})
	if diff := cmp.Diff(before, u.interfaces(pod)); diff != "" {
		u.Errorf("the interfaces of pod %s changed when its container restarted (-before +after):\n%s", pod, diff)
	}
}
