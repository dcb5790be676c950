package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// UIDs of the claims on the test node.
const (
	heldClaim = "11111111-1111-1111-1111-111111111111"
	goneClaim = "22222222-2222-2222-2222-222222222222"
)

// testNode is a node with its files in a directory and a fake driver.
type testNode struct {
	*testing.T
	root    string
	answers nodestate.Answers
	silent  bool
	// later contains the answers when doctor reads the driver a second time; if nil, the answers stay the same.
	later *nodestate.Answers
	asked int
	ready string
	disks map[string]unix.Statfs_t
	// lacksMacvlan is true if the kernel does not support macvlan. unprivileged is the error returned by queries to the
	// kernel.
	lacksMacvlan bool
	unprivileged error
	// crioConfig is the configuration that CRI-O returns; empty if the node does not run CRI-O.
	crioConfig string
}

// healthy returns a node without faults that has a pod, a claim and a virtual function.
func healthy(t *testing.T) *testNode {
	t.Helper()
	n := &testNode{T: t, root: t.TempDir(), disks: map[string]unix.Statfs_t{}}
	for file, content := range map[string]string{
		"proc/10/comm":    "containerd\n",
		"proc/10/cmdline": "/usr/bin/containerd\x00",
		"proc/20/comm":    "kubelet\n",
		"proc/20/cmdline": "/usr/bin/kubelet\x00--hostname-override=worker-1\x00--root-dir\x00/var/lib/kubelet\x00",
		"proc/30/comm":    "dra-network-dri\n",
		"proc/30/cmdline": "/dra-network-driver\x00",
		"etc/containerd/config.toml": "version = 3\nimports = " +
			"[\"conf.d/*.toml\"]\n[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true\n",
		"etc/containerd/conf.d/nri.toml":                             "[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = false\n",
		"etc/cni/net.d/10-flannel.conflist":                          `{"name": "cbr0"}`,
		"sys/class/net/eth0/ifindex":                                 "2\n",
		"sys/class/net/eth1v0/ifindex":                               "5\n",
		"run/NetworkManager/devices/2":                               "[device]\nmanaged=true\n",
		"run/systemd/netif/links/5":                                  "ADMIN_STATE=unmanaged\n",
		"sys/kernel/iommu_groups/0/type":                             "DMA\n",
		"sys/bus/pci/drivers/vfio-pci/bind":                          "",
		"var/lib/kubelet/plugins_registry/dra.networking-reg.sock":   "",
		"run/cdi/dra.networking-" + heldClaim + ".json":              "{}",
		"run/cdi/dra.networking_metadata_" + heldClaim + "_net.json": "{}",
		"run/cdi/vendor.com-gpu.json":                                "{}",
		"run/netns/dra-aaaa.cre66i9s":                                "",
		"run/netns/cni-5f":                                           "",
	} {
		n.write(file, content)
	}
	n.plugin("opt/cni/bin/macvlan", 0o755)
	n.plugin("opt/cni/bin/sriov", 0o755)
	good := []metav1.Condition{{Type: chainapi.ConditionAccepted, Status: metav1.ConditionTrue},
		{Type: chainapi.ConditionClassesReady, Status: metav1.ConditionTrue}}
	p := policyapi.DeviceExposurePolicy{ObjectMeta: metav1.ObjectMeta{Name: "vfs"}}
	p.Status.Conditions = slices.Clone(good[:1])
	n.answers = nodestate.Answers{
		State: nodestate.State{
			Node: "worker-1", Synced: true, NodeFound: true, Settings: defaultSettings(), NRITimeout: 2 * time.Second,
			Versions: nodestate.Versions{Kubelet: "v1.37.1", Runtime: "containerd://2.4.2", Kernel: "6.12.9"},
			Topologies: []nodestate.Topology{{Name: "fast", Conditions: good, Plugins: []string{"macvlan", "sriov"},
				Drivers: []string{"vfio-pci"}}},
			HostPaths: map[string][]string{"whereabouts": {"/etc/cni/net.d"},
				"ovn-k8s-cni-overlay": {"/var/run/ovn-kubernetes/cni"}},
			LinkTypes:      map[string][]string{"macvlan": {"macvlan"}},
			PodAnnotations: map[string]string{"ovn-k8s-cni-overlay": multusAnnotation},
		},
		Inputs: nodestate.PolicyInputs{Policies: []policyapi.DeviceExposurePolicy{p}},
		Published: []draslices.Entry{
			{Name: "eth0", Pool: "worker-1/eth0", Device: discovery.Device{Name: "eth0", Interface: "eth0"}},
			{Name: "eth1v0", Pool: "worker-1/eth1",
				Device: discovery.Device{Name: "eth1v0", Interface: "eth1v0", Type: discovery.TypeVF,
					PCIAddress: "0000:03:00.2"}, Persona: policy.Persona{Exclusive: true}},
		},
		Claims: []nodestate.Claim{{ClaimRecord: nodestate.ClaimRecord{Claim: cnichain.Claim{Namespace: "ns",
			Name: "net", UID: heldClaim}}}},
		Sandboxes: []nodestate.Sandbox{{ID: "aaaa", Pod: executor.Pod{Namespace: "ns", Name: "web"},
			Claims: []string{heldClaim}, State: "ready", Pin: "/var/run/netns/dra-aaaa.cre66i9s"}},
	}
	return n
}

func (n *testNode) write(file, content string) { n.put(file, content, 0o600) }

// plugin creates a plugin file with the given mode.
func (n *testNode) plugin(file string, mode os.FileMode) { n.put(file, "", mode) }

// ovn adds the OVN-Kubernetes plugin to a topology.
func (n *testNode) ovn() {
	n.Helper()
	n.plugin("opt/cni/bin/ovn-k8s-cni-overlay", 0o755)
	topology := &n.answers.State.Topologies[0]
	topology.Plugins = append(topology.Plugins, "ovn-k8s-cni-overlay")
}

func (n *testNode) put(file, content string, mode os.FileMode) {
	n.Helper()
	path := filepath.Join(n.root, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		n.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		n.Fatal(err)
	}
}

// auxiliary adds an auxiliary bus device below a PCI function. If driver is not empty, the device is bound to it.
func (n *testNode) auxiliary(name, function, driver string) {
	n.Helper()
	dir := "devices/pci0000:00/" + function + "/" + name
	n.write("sys/"+dir+"/uevent", "")
	n.write("sys/bus/auxiliary/devices/.keep", "")
	if err := os.Symlink("../../../"+dir, filepath.Join(n.root, "sys/bus/auxiliary/devices", name)); err != nil {
		n.Fatal(err)
	}
	if driver == "" {
		return
	}
	if err := os.Symlink("../../../../bus/auxiliary/drivers/"+driver,
		filepath.Join(n.root, "sys", dir, "driver")); err != nil {
		n.Fatal(err)
	}
}

func (n *testNode) remove(files ...string) {
	n.Helper()
	for _, file := range files {
		if err := os.RemoveAll(filepath.Join(n.root, file)); err != nil {
			n.Fatal(err)
		}
	}
}

func (n *testNode) containerd(section string) { n.write("etc/containerd/conf.d/z.toml", section) }

// query returns the same JSON data as the driver's socket.
func (n *testNode) query(_ context.Context, path string, target any) error {
	if n.silent {
		return errors.New("the driver of this node does not answer")
	}
	answers := &n.answers
	if n.asked++; n.later != nil && n.asked > 6 {
		answers = n.later
	}
	said := map[string]any{
		"/state": answers.State, "/policies": answers.Inputs, "/published": answers.Published,
		"/claims": answers.Claims, "/sandboxes": answers.Sandboxes, "/leftovers": answers.Leftovers,
	}
	encoded, err := json.Marshal(said[path])
	if err != nil {
		return err
	}
	return json.Unmarshal(encoded, target)
}

func (n *testNode) statfs(path string, stat *unix.Statfs_t) error {
	if disk, special := n.disks[strings.TrimPrefix(path, n.root)]; special {
		if disk.Bsize == 0 {
			return unix.ENOENT
		}
		*stat = disk
		return nil
	}
	*stat = unix.Statfs_t{Bsize: 4096, Bavail: 1 << 20, Files: 1 << 20, Ffree: 1 << 19}
	return nil
}

// missingLinkTypes behaves like a kernel with built-in macvlan support, unless lacksMacvlan is true.
func (n *testNode) missingLinkTypes(types []string) ([]string, error) {
	return slices.DeleteFunc(slices.Clone(types), func(linkType string) bool {
		return linkType == "macvlan" && !n.lacksMacvlan
	}), n.unprivileged
}

// get behaves like CRI-O if crioConfig is set.
func (n *testNode) get(_ context.Context, socket, path string) ([]byte, error) {
	if n.crioConfig == "" || path != "/config" || socket != filepath.Join(n.root, "/run/crio/crio.sock") {
		return nil, errors.New("connection refused")
	}
	return []byte(n.crioConfig), nil
}

// crio replaces containerd with CRI-O. It uses CRI-O's default configuration after applying the given text
// replacements.
func (n *testNode) crio(replace ...string) {
	n.answers.State.Versions.Runtime = "cri-o://1.37.0"
	n.write("proc/10/comm", "crio\n")
	n.write("proc/10/cmdline", "/usr/bin/crio\x00--listen=/run/crio/crio.sock\x00")
	n.crioConfig = strings.NewReplacer(replace...).Replace(`
[crio.runtime]
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
[crio.network]
plugin_dirs = ["/opt/cni/bin/"]
[crio.nri]
enable_nri = true
nri_disable_connections = false
nri_listen = "/var/run/nri/nri.sock"
nri_plugin_request_timeout = "2s"
[crio.nri.default_validator]
nri_enable_default_validator = false
nri_validator_required_plugins = ["dra-network"]
`)
}

// fs is the node's file system.
func (n *testNode) fs() fs.FS {
	n.Helper()
	root, err := os.OpenRoot(n.root)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = root.Close() })
	return root.FS()
}

// examine runs doctor on the node.
func (n *testNode) examine() []Finding {
	n.Helper()
	return Examine(Gather(n.Context(), Sources{
		Root: n.fs(), Path: n.root, Query: n.query, Statfs: n.statfs, Get: n.get,
		MissingLinkTypes: n.missingLinkTypes,
		Ready:            func(context.Context) string { return n.ready },
	}))
}
