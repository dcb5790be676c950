package suite

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

var released = flag.String("release", "", "folder of a release to install, with images of the registry localhost")

// TestReleased installs a release from its files: the chart and the images. The node has no CNI plugins of its own and
// uses those in the driver's image. The chart's own test passes, and a pod gets its interface.
func TestReleased(t *testing.T) {
	if *released == "" {
		t.Skip("needs a release; run make release-try")
	}
	folder, err := filepath.Abs(*released)
	if err != nil {
		t.Fatal(err)
	}
	helm, err := filepath.Abs("../../bin/tools/helm")
	if err != nil {
		t.Fatal(err)
	}
	images, charts := matches(t, folder, "*.oci.tar"), matches(t, folder, "*.tgz")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if os.Getuid() != 0 {
		t.Skip("needs root: starts a local Kubernetes cluster in private namespaces")
	}
	cluster, client, err := up(ctx, *clusterName+"-released")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := cluster.ImportImages(ctx, images...); err != nil {
		t.Fatal(err)
	}
	const empty = "/opt/cni/none"
	for _, args := range [][]string{
		{"mkdir", empty},
		{"kubectl", "create", "namespace", stack.Namespace},
		{"kubectl", "label", "namespace", stack.Namespace, "pod-security.kubernetes.io/enforce=privileged"},
		{helm, "install", "dra-network", charts[0], "--namespace", stack.Namespace, "--wait", "--timeout=90s",
			"--set", "node.image.repository=localhost/" + stack.Driver + "-with-plugins",
			"--set", "cniPlugins.included=true", "--set", "paths.cniBin={" + empty + "}"},
	} {
		if output, err := cluster.Exec(ctx, args...); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
	e := newEnvOn(t, cluster, client, "released")
	e.offerMacvlan("re0", "10.178.0.0/24")
	e.create(pod("p", "re0"))
	e.ready("p")
	e.inPod("p", "ip", "addr", "show", "net1")
	output, err := cluster.Exec(ctx, helm, "test", "dra-network", "--namespace", stack.Namespace, "--logs",
		"--timeout=60s")
	if err != nil {
		t.Errorf("the chart's test failed: %v\n%s", err, output)
	}
	said, err := cluster.Exec(ctx, "kubectl", "-n", stack.Namespace, "exec", "daemonset/"+stack.Driver, "--",
		"/netdra", "version")
	tag, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(images[0]), stack.Controller+"_"), ".oci.tar")
	if err != nil || strings.Count(string(said), tag+" ") != 2 {
		t.Errorf("want version %s from netdra and the driver, got %v\n%s", tag, err, said)
	}
	t.Logf("%s\n%s", output, said)
	e.deleting("p")
	e.gone("p")
}

func matches(t *testing.T, folder, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("%s has no %s: %v", folder, pattern, err)
	}
	return found
}
