package fleet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

const (
	whereaboutsModule = "github.com/k8snetworkplumbingwg/whereabouts"
	// whereaboutsDir is the directory on nodes that contains the plugin's configuration for the cluster. It is mounted
	// in the driver's container.
	whereaboutsDir = "/var/lib/cni/whereabouts"
	// whereaboutsPool is the name of the IPPool that the plugin creates for the range in [whereabouts].
	whereaboutsPool = "10.206.0.0-24"
)

// whereabouts is a topology with macvlan interfaces on the wire. The plugin records their addresses in the cluster.
const whereabouts = `
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: whereabouts}
spec:
  steps:
  - name: link
    type: macvlan
    selector: {cel: 'device.attributes["dra.networking"].ifName == "eth3"'}
    config:
      mode: bridge
      ipam: {type: whereabouts, range: 10.206.0.0/24, configuration_path: ` + whereaboutsDir + `/whereabouts.conf}
`

const whereaboutsTemplate = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: whereabouts}
spec: {spec: {devices: {requests: [{name: link, exactly: {deviceClassName: whereabouts-link}}]}}}
`

// TestWhereabouts uses the real whereabouts plugin, with the permissions granted by its own manifests, to allocate
// addresses to pods on several nodes. All addresses are unique, and the pods can reach each other through their nodes'
// kernels. If a node is switched off and its pods are force-deleted, the pods' addresses are released only once the
// driver is running again on the node. At the end, the plugin has no allocations.
func TestWhereabouts(t *testing.T) {
	f := newFleet(t, "whereabouts")
	f.installWhereabouts()
	f.apply(whereabouts)
	t.Cleanup(func() {
		f.must("delete", "pods", "--all", "--force", "--grace-period=0")
		f.must("delete", "networktopology", "whereabouts")
	})
	f.create(whereaboutsTemplate)
	lost, other, third := f.besideController()
	places := map[string]*lab.Node{"left0": lost, "left1": lost, "right0": other, "right1": other, "far": third}
	for name, n := range places {
		f.create(watchedPod(name, ofTemplate("whereabouts"), n))
	}
	f.ready(nil, slices.Collect(maps.Keys(places))...)
	addresses := f.distinctAddresses(places)
	f.reach("right0", addresses["left0"], addresses["left1"], addresses["right1"], addresses["far"])
	f.allocates(addresses)

	f.Cleanup(func() { // the next tests need the node
		if err := lost.PowerOn(context.Background()); err != nil {
			f.Error(err)
		}
	})
	if err := lost.PowerOff(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.must("delete", "pod", "--force", "--grace-period=0", "left0", "left1")
	f.gone("left0", "left1")
	f.create(watchedPod("meanwhile", ofTemplate("whereabouts"), other))
	f.ready(nil, "meanwhile")
	delete(places, "left0")
	delete(places, "left1")
	places["meanwhile"] = other
	now := f.distinctAddresses(places)
	for _, pod := range []string{"left0", "left1"} { // the plugin was not called to release their addresses
		now[pod] = addresses[pod]
	}
	f.allocates(now)
	if err := lost.PowerOn(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.offers(lost)
	f.create(watchedPod("again", ofTemplate("whereabouts"), lost))
	f.ready(nil, "again")
	places["again"] = lost
	addresses = f.distinctAddresses(places)
	f.allocates(addresses)
	f.reach("again", addresses["right0"], addresses["meanwhile"], addresses["far"])

	f.neverEarly(slices.Collect(maps.Keys(places))...)
	f.remove(slices.Collect(maps.Keys(places))...)
	f.allocates(nil)
	f.plantAllocation()
}

// installWhereabouts creates the plugin's custom resource definitions, its service account and permissions, and its
// kubeconfig on each node, and removes them at the end of the test. It reads the files from the plugin's Go module.
func (f *fleet) installWhereabouts() {
	f.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", whereaboutsModule)
	list.Dir = "../tools"
	list.Env = append(list.Environ(), "GOFLAGS=", "GOWORK=off")
	folder, err := list.Output()
	if err != nil {
		f.Fatalf("cannot find the module of whereabouts: %v", err)
	}
	folder = []byte(filepath.Join(strings.TrimSpace(string(folder)), "doc/crds"))
	definitions, err := filepath.Glob(filepath.Join(string(folder), "whereabouts.cni.cncf.io_*.yaml"))
	if err != nil || len(definitions) == 0 {
		f.Fatalf("found no definitions in %s: %v", folder, err)
	}
	var objects []string
	for _, file := range append(definitions, filepath.Join(string(folder), "daemonset-install.yaml")) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			// Omit the DaemonSet, which only copies the plugin to nodes and frees addresses (docs/limits.md), and the
			// ConfigMaps, which only the DaemonSet uses.
			if !strings.Contains(document, "kind: DaemonSet") && !strings.Contains(document, "kind: ConfigMap") {
				objects = append(objects, document)
			}
		}
	}
	manifests := strings.Join(objects, "\n---\n")
	if output, err := f.kubectl(manifests, "-n", "kube-system", "apply", "-f", "-"); err != nil {
		f.Fatalf("cannot install whereabouts: %v\n%s", err, output)
	}
	f.Cleanup(func() {
		if output, err := f.kubectl(manifests, "-n", "kube-system", "delete", "-f", "-"); err != nil {
			f.Errorf("cannot remove whereabouts: %v\n%s", err, output)
		}
	})
	for _, file := range definitions {
		f.must("wait", "--for=condition=Established", "--timeout=30s", "-f", file)
	}
	f.configureWhereabouts(strings.TrimSpace(f.must("-n", "kube-system", "create", "token", "whereabouts")))
}

// configureWhereabouts configures the plugin's access to the cluster on each node, with a token.
func (f *fleet) configureWhereabouts(token string) {
	f.Helper()
	config, err := clientcmd.LoadFromFile(f.cluster.Kubeconfig())
	if err == nil {
		err = api.FlattenConfig(config)
	}
	if err != nil {
		f.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &api.AuthInfo{Token: token}
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		f.Fatal(err)
	}
	files := map[string]string{"kubeconfig": string(data),
		"whereabouts.conf": `{"kubernetes": {"kubeconfig": "` + whereaboutsDir + `/kubeconfig"}}`}
	for _, n := range f.nodes {
		above, err := n.NodePath(filepath.Dir(whereaboutsDir))
		if err != nil {
			f.Fatal(err)
		}
		folder := filepath.Join(above, filepath.Base(whereaboutsDir))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			f.Fatal(err)
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
				f.Fatal(err)
			}
		}
		f.Cleanup(func() { // the path changes when the node reboots
			folder, err := n.NodePath(whereaboutsDir)
			if err == nil {
				err = os.RemoveAll(folder)
			}
			if err != nil {
				f.Error(err)
			}
		})
	}
}

// allocations returns one line for each address that the plugin has allocated, which includes the pod reference, and
// one line for each reservation.
func (f *fleet) allocations() []string {
	f.Helper()
	pools := f.must("-n", "kube-system", "get", "ippools.whereabouts.cni.cncf.io", "-o",
		`jsonpath={range .items[*].spec.allocations.*}{.podref}{"\n"}{end}`)
	reserved := f.must("-n", "kube-system", "get", "overlappingrangeipreservations.whereabouts.cni.cncf.io", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.spec.podref}{"\n"}{end}`)
	return slices.Sorted(strings.Lines(pools + reserved))
}

// allocates waits until the plugin's allocations are exactly the addresses of the pods.
func (f *fleet) allocates(addresses map[string][]string) {
	f.Helper()
	var want []string
	for pod, has := range addresses {
		for _, address := range has {
			want = append(want, f.namespace+"/"+pod+"\n", fmt.Sprintf("%s %s/%s\n", address, f.namespace, pod))
		}
	}
	slices.Sort(want)
	f.eventually("the plugin has given the addresses that pods have", func(context.Context) error {
		if have := f.allocations(); !slices.Equal(have, want) {
			return fmt.Errorf("the plugin has allocated %q, but pods have %q", have, want)
		}
		return nil
	})
}

// plantAllocation adds an allocation without a pod to the plugin's pool, checks that allocations returns it, and
// removes it again.
func (f *fleet) plantAllocation() {
	f.Helper()
	patch := func(allocations string) {
		f.must("-n", "kube-system", "patch", "ippools.whereabouts.cni.cncf.io", whereaboutsPool, "--type=merge",
			"--patch", `{"spec":{"allocations":`+allocations+`}}`)
	}
	patch(`{"9":{"id":"planted","ifname":"net1","podref":"nobody/nothing"}}`)
	if have := f.allocations(); !slices.Equal(have, []string{"nobody/nothing\n"}) {
		f.Errorf("with a planted allocation, got allocations %q, want only that one", have)
	}
	patch(`{"9":null}`)
}
