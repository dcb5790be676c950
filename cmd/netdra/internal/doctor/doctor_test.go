package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// bad returns the findings that are not OK.
func bad(findings []Finding) []Finding {
	return slices.DeleteFunc(findings, func(f Finding) bool { return f.Level == OK })
}

func TestHealthyNode(t *testing.T) {
	for name, mounts := range map[string]string{"as it is": "/etc/cni/net.d", "in a folder": "/etc"} {
		t.Run("directory of a plugin "+name, func(t *testing.T) {
			n := healthy(t)
			n.plugin("opt/cni/bin/whereabouts", 0o755)
			n.write("etc/cni/net.d/10-bridge.conf", "{}")
			n.answers.State.Topologies[0].Plugins = append(n.answers.State.Topologies[0].Plugins, "whereabouts")
			n.write("proc/30/status", "NSpid:\t30\t1\n")
			n.write("proc/30/mountinfo", "1 0 0:9 / / rw - overlay o rw\n2 1 0:1 /x "+mounts+" ro - ext4 /dev/a rw\n")
			if diff := cmp.Diff([]Finding{}, bad(n.examine())); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("device of a device plugin in a pod that no longer exists", func(t *testing.T) {
		n := healthy(t)
		n.write("var/lib/kubelet/pods/pod-2/etc-hosts", "")
		n.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", `{"Data": {"PodDeviceEntries": [
			{"PodUID": "pod-1", "ResourceName": "example.com/vf", "DeviceIDs": {"-1": ["0000:03:00.2"]}}]}}`)
		if diff := cmp.Diff([]Finding{}, bad(n.examine())); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("plugins only in the driver's pod", func(t *testing.T) {
		n := healthy(t)
		n.remove("opt/cni/bin/macvlan")
		n.answers.State.CNIPlugins = []string{"macvlan", "sriov"}
		if diff := cmp.Diff([]Finding{}, bad(n.examine())); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("CRI-O", func(t *testing.T) {
		n := healthy(t)
		n.crio()
		if diff := cmp.Diff([]Finding{}, bad(n.examine())); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("process of a tenant with the name of CRI-O", func(t *testing.T) {
		n := healthy(t)
		n.write("proc/11/comm", "crio\n")
		n.write("proc/11/cmdline", "/crio\x00--listen=/tenant.sock\x00")
		n.write("proc/11/status", "NSpid:\t11\t1\n")
		for _, n.silent = range []bool{false, true} {
			for _, finding := range n.examine() {
				if finding.Check == "nri-enabled" && finding.Level != OK {
					t.Errorf("driver silent: %t: %+v", n.silent, finding)
				}
			}
		}
	})
	t.Run("empty settings of CRI-O", func(t *testing.T) {
		n := healthy(t)
		n.crio(`"/var/run/nri/nri.sock"`, `""`, `"2s"`, `"0s"`)
		n.answers.State.NRITimeout = 0
		if diff := cmp.Diff([]Finding{}, bad(n.examine())); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("CRI-O that does not answer", func(t *testing.T) {
		n := healthy(t)
		n.crio()
		n.crioConfig = ""
		if !slices.ContainsFunc(n.examine(), func(f Finding) bool {
			return f.Check == "nri-enabled" && f.Level == Unknown &&
				strings.Contains(f.Why, "cannot read the configuration of CRI-O")
		}) {
			t.Error("the reason for the skipped check is missing")
		}
	})
	if diff := cmp.Diff([]Finding{}, bad(healthy(t).examine())); diff != "" {
		t.Errorf("want no findings (-want +got):\n%s", diff)
	}
}

// faultCase adds a single fault to an otherwise healthy node, and contains the only finding that doctor must return.
type faultCase struct {
	plant func(*testNode)
	level Level
	check string
	says  []string // texts that What, Where, Why or Do must contain
}

func TestFaults(t *testing.T) {
	const nri = "[plugins.\"io.containerd.nri.v1.nri\"]\n"
	const cri = "[plugins.\"io.containerd.cri.v1.runtime\"]\n"
	tests := map[string]faultCase{
		"NRI is off": {func(n *testNode) { n.containerd(nri + "disable = true\n") }, Fail, "nri-enabled",
			[]string{"/etc/containerd/config.toml", "disable = false"}},
		"NRI is a disabled plugin": {func(n *testNode) {
			n.containerd("disabled_plugins = " +
				"[\"io.containerd.nri.v1.nri\"]\n")
		}, Fail, "nri-enabled", []string{"disabled_plugins"}},
		"NRI socket elsewhere": {func(n *testNode) { n.containerd(nri + "socket_path = \"/run/k3s/nri.sock\"\n") },
			Fail, "nri-socket", []string{"--nri-socket=/run/k3s/nri.sock"}},
		"short NRI timeout": {func(n *testNode) {
			n.answers.State.NRITimeout = 0
			n.containerd(nri + "plugin_request_timeout = \"200ms\"\n")
		}, Warn, "nri-timeout", []string{"200ms"}},
		"NRI timeout from registration": {func(n *testNode) {
			n.answers.State.NRITimeout = 300 * time.Millisecond
		}, Warn, "nri-timeout", []string{"300ms"}},
		"required, not tolerated": {func(n *testNode) {
			n.containerd(nri + "[plugins.\"io.containerd.nri.v1.nri\".default_validator]\nenable = " +
				"true\nrequired_plugins = [\"90-dra-network\"]\n")
		}, Warn, "nri-required", []string{"tolerate_missing_plugins_annotation"}},
		"NRI is a plugin disabled by one of several files": {func(n *testNode) {
			n.write("etc/containerd/conf.d/a.toml", "disabled_plugins = [\"io.containerd.nri.v1.nri\"]\n")
			n.containerd("disabled_plugins = [\"other\"]\n")
		}, Fail, "nri-enabled", []string{"disabled_plugins"}},
		"CDI is off": {func(n *testNode) {
			n.answers.State.Versions.Runtime = "containerd://2.3.1"
			n.containerd(cri + "enable_cdi = false\n")
		}, Fail, "cdi", []string{"enable_cdi"}},
		"CDI directory elsewhere": {func(n *testNode) { n.containerd(cri + "cdi_spec_dirs = [\"/etc/cdi\"]\n") }, Fail,
			"cdi", []string{"/var/run/cdi", "now /etc/cdi"}},
		"containerd with a bug": {func(n *testNode) { n.answers.State.Versions.Runtime = "containerd://2.2.3" }, Warn,
			"runtime-version", []string{"issues/13609"}},
		"containerd too old": {func(n *testNode) { n.answers.State.Versions.Runtime = "containerd://1.7.27-0ubuntu1" },
			Fail, "runtime-version", []string{"containerd 1.7.27"}},
		"another runtime": {func(n *testNode) { n.answers.State.Versions.Runtime = "docker://29.0.0" }, Warn,
			"runtime-version", []string{"docker", "CRI-O 1.37"}},
		"runtime that reports too little": {func(n *testNode) {
			n.answers.State.MissingFacts = []string{"the runtime reports no namespaces"}
		}, Fail, "runtime-version", []string{"reports no namespaces", "CRI-O 1.37"}},
		"NRI is off in CRI-O": {func(n *testNode) { n.crio("enable_nri = true", "enable_nri = false") }, Fail,
			"nri-enabled", []string{"NRI is disabled in CRI-O", "enable_nri = true", "restart CRI-O"}},
		"CRI-O accepts no plugins": {func(n *testNode) {
			n.crio("nri_disable_connections = false", "nri_disable_connections = true")
		}, Fail, "nri-enabled", []string{"nri_disable_connections = false in [crio.nri]"}},
		"NRI socket of CRI-O": {func(n *testNode) { n.crio("/var/run/nri/", "/var/run/other/") }, Fail, "nri-socket",
			[]string{"CRI-O's NRI socket is /var/run/other/nri.sock", "remove nri_listen"}},
		"NRI timeout of CRI-O": {func(n *testNode) {
			n.crio(`"2s"`, `"100ms"`)
			n.answers.State.NRITimeout = 0
		}, Warn, "nri-timeout",
			[]string{"100ms", "nri_plugin_request_timeout from [crio.nri]"}},
		"driver is required by CRI-O": {func(n *testNode) { n.crio("validator = false", "validator = true") }, Warn,
			"nri-required", []string{"CRI-O creates no containers", "nri_validator_tolerate_missing_plugins_anno"}},
		"CDI directory of CRI-O": {func(n *testNode) { n.crio(`"/etc/cdi", "/var/run/cdi"`, `"/etc/cdi"`) }, Fail,
			"cdi", []string{"CRI-O does not read", "now /etc/cdi"}},
		"kubelet too old": {func(n *testNode) { n.answers.State.Versions.Kubelet = "v1.34.1" }, Fail,
			"runtime-version", []string{"kubelet 1.34.1"}},
		"unreadable version": {func(n *testNode) { n.answers.State.Versions.Kubelet = "latest" }, Warn,
			"runtime-version", []string{`"latest"`}},
		"kubelet elsewhere": {func(n *testNode) {
			n.write("proc/20/cmdline",
				"kubelet\x00--root-dir=/data/kubelet\x00")
		}, Fail, "kubelet-directory", []string{"/data/kubelet/plugins"}},
		"another node": {func(n *testNode) {
			n.write("proc/20/cmdline",
				"kubelet\x00--hostname-override=worker-2\x00")
		}, Fail, "node-name", []string{`"worker-1"`, `"worker-2"`}},
		"no such node": {func(n *testNode) { n.answers.State.NodeFound = false }, Fail, "node-name",
			[]string{"kubectl get nodes"}},
		"driver not ready": {func(n *testNode) { n.answers.State.NotReady = []string{"not registered with kubelet"} },
			Fail, "driver-ready", []string{"not registered with kubelet"}},
		"journal set aside": {func(n *testNode) {
			n.write("var/lib/kubelet/plugins/dra.networking/journal.db.unreadable-20260101T000000", "")
		}, Warn, "journal", []string{"journal.db.unreadable-20260101T000000"}},
		"journal on read-only disk": {func(n *testNode) {
			n.disks["/var/lib/kubelet/plugins/dra.networking"] = unix.Statfs_t{Bsize: 4096, Bavail: 1 << 20,
				Flags: unix.ST_RDONLY}
		}, Fail, "directories", []string{"read-only"}},
		"journal on full disk": {func(n *testNode) {
			n.disks["/var/lib/kubelet/plugins/dra.networking"] = unix.Statfs_t{Bsize: 4096, Bavail: 256}
		}, Fail, "directories", []string{"1 MiB"}},
		"no inodes for logs": {func(n *testNode) {
			n.disks["/var/log/dra-network"] = unix.Statfs_t{Bsize: 4096, Bavail: 1 << 20, Files: 1000}
		}, Warn, "directories", []string{"CNI calls are not logged"}},
		"no CDI directory": {func(n *testNode) { n.disks["/run/cdi"] = unix.Statfs_t{} }, Fail, "directories",
			[]string{"does not exist"}},
		"plugin missing": {func(n *testNode) { n.remove("opt/cni/bin/macvlan") }, Fail, "cni-plugins",
			[]string{"macvlan is not installed", "topology fast"}},
		"plugin not executable": {func(n *testNode) { n.plugin("opt/cni/bin/macvlan", 0o644) }, Fail, "cni-plugins",
			[]string{"chmod 755 /opt/cni/bin/macvlan"}},
		"plugin not in the pod": {func(n *testNode) { n.answers.State.CNIPlugins = []string{"macvlan"} }, Fail,
			"cni-plugins", []string{"CNI plugin sriov is on the node but not in the driver's pod",
				"/opt/cni/bin/sriov", "cniPlugins.image"}},
		"plugin without its C library": {func(n *testNode) {
			n.answers.State.CNIPlugins = []string{"macvlan", "sriov"}
			n.answers.State.MissingInterpreters = map[string]string{"sriov": "/lib64/ld-absent.so.2"}
		}, Fail, "cni-plugins", []string{"CNI plugin sriov is dynamically linked, and the driver's pod does not contain " +
			"/lib64/ld-absent.so.2", "install a statically linked plugin"}},
		"plugin elsewhere": {func(n *testNode) {
			n.remove("opt/cni/bin/macvlan")
			n.plugin("usr/lib/cni/macvlan",
				0o755)
		}, Fail, "cni-plugins", []string{"--cni-bin-dir=/opt/cni/bin,/usr/lib/cni"}},
		"directory of a plugin not in the pod": {func(n *testNode) {
			n.plugin("opt/cni/bin/whereabouts", 0o755)
			n.answers.State.Topologies[0].Plugins = append(n.answers.State.Topologies[0].Plugins, "whereabouts")
			n.write("proc/30/status", "NSpid:\t30\t1\n")
			n.write("proc/30/mountinfo", "1 0 0:9 / / rw - overlay o rw\n2 1 0:1 /x /opt/cni/bin ro - ext4 /dev/a "+
				"rw\n3 1 0:1 /y /etc/cni/net ro - ext4 /dev/a rw\n")
		}, Fail, "plugin-folders", []string{"CNI plugin whereabouts needs /etc/cni/net.d", "topology fast",
			"node.extraMounts[0].hostPath=/etc/cni/net.d"}},
		"directory of a plugin with a schema in the cluster": {func(n *testNode) {
			n.answers.State.HostPaths = map[string][]string{"macvlan": {"/etc/vendor"}}
			n.write("etc/vendor", "")
			n.write("proc/30/status", "NSpid:\t30\t1\n")
			n.write("proc/30/mountinfo", "1 0 0:9 / / rw - overlay o rw\n2 1 0:1 /x /opt/cni/bin ro - ext4 /dev/a rw\n")
		}, Fail, "plugin-folders", []string{"CNI plugin macvlan needs /etc/vendor", "topology fast"}},
		"kernel without a type of link": {func(n *testNode) { n.lacksMacvlan = true }, Fail, "link-types",
			[]string{"does not support links of type macvlan, which CNI plugin macvlan needs", "kernel 6.12.9",
				"topology fast", "modprobe rtnl-link-macvlan"}},
		"kernel without a link type from a schema in the cluster": {func(n *testNode) {
			n.answers.State.LinkTypes = map[string][]string{"sriov": {"vendorlink"}}
		}, Fail, "link-types", []string{"links of type vendorlink, which CNI plugin sriov needs"}},
		"kernel that cannot be queried": {func(n *testNode) { n.unprivileged = errors.New("run as root") }, Unknown,
			"link-types", []string{"run as root"}},
		"service of a plugin does not run": {func(n *testNode) { n.ovn() }, Fail, "plugin-folders",
			[]string{"ovn-k8s-cni-overlay needs /var/run/ovn-kubernetes/cni on the host, which does not exist",
				"topology fast"}},
		"networks that Multus also attaches": {func(n *testNode) {
			n.ovn()
			n.write("var/run/ovn-kubernetes/cni/ovn-cni-server.sock", "")
			n.write("etc/cni/net.d/00-multus.conf", `{"type": "multus-shim"}`)
		}, Fail, "other-owners", []string{"Multus also attaches the networks that pods select for CNI plugin " +
			"ovn-k8s-cni-overlay", "topology fast"}},
		"SR-IOV device plugin": {func(n *testNode) { n.write("proc/40/comm", "sriovdp\n") }, Warn, "other-owners",
			[]string{"process sriovdp"}},
		"another DRA driver": {func(n *testNode) { n.write("var/lib/kubelet/plugins_registry/dra.net-reg.sock", "") },
			Warn, "other-owners", []string{"DRANET"}},
		"Multus": {func(n *testNode) { n.write("etc/cni/net.d/00-multus.conf", `{"type": "multus-shim"}`) },
			Warn, "other-owners", []string{"/etc/cni/net.d/00-multus.conf"}},
		"Multus in the runtime's directory": {func(n *testNode) {
			const dir = "var/lib/rancher/k3s/agent/etc/cni/net.d"
			n.write("etc/containerd/config.toml", `version = 3
[plugins."io.containerd.cri.v1.runtime".cni]
conf_dir = "/`+dir+`"`)
			n.write(dir+"/00-multus.conf", `{"type": "multus"}`)
		}, Warn, "other-owners", []string{"/var/lib/rancher/k3s/agent/etc/cni/net.d/00-multus.conf"}},
		"device of a device plugin": {func(n *testNode) {
			n.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", `{"Data": {"PodDeviceEntries": null,
				"RegisteredDevices": {"example.com/vf": ["0000:03:00.2", "0000:03:00.7"]}}, "Checksum": 1}`)
		}, Fail, "double-owners", []string{"device eth1v0 (0000:03:00.2)", "resource example.com/vf"}},
		"device of a device plugin in a pod": {func(n *testNode) {
			n.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", `{"Data": {"PodDeviceEntries": [
				{"PodUID": "pod-1", "ResourceName": "example.com/vf", "DeviceIDs": {"-1": ["0000:03:00.2"]}}],
				"RegisteredDevices": {"example.com/vf": ["0000:03:00.2"]}}}`)
			n.write("var/lib/kubelet/pods/pod-1/etc-hosts", "")
		}, Fail, "double-owners", []string{"to the pod with UID pod-1"}},
		"device that a device plugin describes": {func(n *testNode) {
			n.write("run/k8s.cni.cncf.io/devinfo/dp/example.com-vf-0000:03:00.2-device.json",
				`{"type": "pci", "pci": {"pci-address": "0000:03:00.2"}}`)
			n.write("run/k8s.cni.cncf.io/devinfo/dp/example.com-vf-0000:03:00.7-device.json",
				`{"type": "pci", "pci": {"pci-address": "0000:03:00.2"}, "dra.networking/writtenBy": "dra.networking"}`)
		}, Fail, "double-owners", []string{"/devinfo/dp/example.com-vf-0000:03:00.2-device.json"}},
		"NetworkManager": {func(n *testNode) { n.write("run/NetworkManager/devices/5", "[device]\nmanaged=true\n") },
			Warn, "network-managers", []string{"nmcli device set eth1v0 managed no"}},
		"systemd-networkd": {func(n *testNode) {
			n.write("run/systemd/netif/links/5", "NETWORK_FILE=/etc/systemd/network/1.network\n")
		}, Warn, "network-managers", []string{"networkctl status eth1v0"}},
		"no IOMMU": {func(n *testNode) { n.remove("sys/kernel/iommu_groups/0") }, Warn, "iommu",
			[]string{"intel_iommu=on"}},
		"no vfio-pci": {func(n *testNode) { n.remove("sys/bus/pci/drivers/vfio-pci") }, Warn, "iommu",
			[]string{"modprobe vfio-pci"}},
		"RDMA without a module": {func(n *testNode) { n.auxiliary("mlx5_core.rdma.1", "0000:03:00.2", "") },
			Warn, "rdma",
			[]string{"eth1v0", "modprobe auxiliary:mlx5_core.rdma,"}},
		"orphaned CDI spec": {func(n *testNode) { n.write("run/cdi/dra.networking-"+goneClaim+".json", "{}") },
			Warn, "cdi-specs", []string{goneClaim}},
		"orphaned CDI spec with metadata": {func(n *testNode) {
			n.write("run/cdi/dra.networking_metadata_"+goneClaim+
				"_r.json", "{}")
		}, Warn, "cdi-specs", []string{goneClaim}},
		"orphaned CDI spec of external devices": {func(n *testNode) {
			n.write("run/cdi/dra.networking_external_"+goneClaim+".json", "{}")
		}, Warn, "cdi-specs", []string{goneClaim, "pod networks"}},
		"orphaned pin": {func(n *testNode) { n.write("run/netns/dra-bbbb.cre66i9s", "") }, Warn, "namespaces",
			[]string{"/var/run/netns/dra-bbbb.cre66i9s"}},
		"claim without a pod": {func(n *testNode) { n.answers.Claims[0].Unused = true }, Warn, "claims",
			[]string{"claim ns/net"}},
		"link with a temporary name": {func(n *testNode) { n.write("sys/class/net/dra-0badcafe/ifindex", "9") },
			Warn,
			"links", []string{"dra-0badcafe"}},
		"pod that is not attached": {func(n *testNode) {
			n.answers.Sandboxes[0].State, n.answers.Sandboxes[0].Failure = "attaching", "no\naddress"
			n.answers.Sandboxes[0].FailureHint = "the kernel may lack it"
		}, Warn, "attaching", []string{"pod ns/web", "no address",
			"the kernel may lack it; for the next retry, run kubectl describe pod"}},
		"claim that is refused": {func(n *testNode) {
			n.answers.State.Refused = []nodestate.RefusedClaim{{Claim: cnichain.Claim{Namespace: "ns", Name: "own"},
				Pods: []string{"ns/db"}, Message: "no\nversion"}}
		}, Warn, "attaching", []string{"pod ns/db waits: claim ns/own could not be prepared", "no version"}},
		"pod that cannot be detached": {func(n *testNode) {
			n.answers.Sandboxes[0].State, n.answers.Sandboxes[0].DetachFailure = "detaching", "no\nplugin"
		}, Warn, "attaching", []string{"of pod ns/web could not be detached", "no plugin", "netdra release"}},
		"lost interface": {func(n *testNode) { loseInterface(n) }, Fail, "pod-interfaces",
			[]string{"pod ns/web", "net1", "kubectl -n ns delete pod web"}},
		"gone device": {func(n *testNode) {
			loseInterface(n)
			n.answers.Published[1].Spec.Taints = []resourceapi.DeviceTaint{{Value: "gone"}}
		}, Fail, "gone-devices", []string{"device eth1v0", "ns/net (pod ns/web)", "delete these pods"}},
		"quarantine": {func(n *testNode) { n.answers.Leftovers = []executor.Leftover{left(true)} }, Fail, "quarantine",
			[]string{"device eth1v0", "netdra release key"}},
		"quarantine of a link": {func(n *testNode) {
			n.answers.Leftovers = []executor.Leftover{left(true)}
			n.write("sys/class/net/dra-0badcafe/ifindex", "9")
		}, Fail, "quarantine", []string{"device eth1v0"}},
		"pin of a leftover": {func(n *testNode) {
			n.answers.Leftovers = []executor.Leftover{left(true)}
			n.answers.Leftovers[0].Attachment.Pin = "/var/run/netns/dra-bbbb.cre66i9s"
			n.write("run/netns/dra-bbbb.cre66i9s", "")
		}, Fail, "quarantine", []string{"device eth1v0"}},
		"leftover without quarantine": {func(n *testNode) { n.answers.Leftovers = []executor.Leftover{left(false)} },
			Warn, "quarantine", []string{"could not be undone"}},
		"a problem of the driver": {func(n *testNode) {
			n.answers.State.Problems = []nodestate.Problem{{Source: "slices", Text: "too many devices"}}
		}, Warn, "problems", []string{"too many devices", "a device is not offered"}},
		"a remark of the driver": {func(n *testNode) {
			n.answers.State.Problems = []nodestate.Problem{{Source: "slices", Text: "each claim takes 1", Remark: true}}
		}, Warn, "problems", []string{"each claim takes 1", "devices are offered as the policy defines"}},
		"policy refused": {func(n *testNode) { n.answers.Inputs.Policies[0].Status.Conditions[0].Status = metav1.ConditionFalse }, Fail, "policies", []string{"DeviceExposurePolicy vfs is not Accepted"}},
		"topology refused": {func(n *testNode) {
			condition(n, chainapi.ConditionAccepted,
				metav1.ConditionFalse)
		}, Fail, "topologies", []string{"NetworkTopology fast is not Accepted"}},
		"classes not ready": {func(n *testNode) {
			condition(n, chainapi.ConditionClassesReady,
				metav1.ConditionFalse)
		}, Fail, "topologies", []string{"not ClassesReady"}},
		"no controller": {func(n *testNode) { n.answers.State.Topologies[0].Conditions = nil }, Warn,
			"topologies", []string{"dra-network-controller"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := healthy(t)
			test.plant(n)
			found := bad(n.examine())
			if len(found) != 1 || found[0].Level != test.level || found[0].Check != test.check {
				t.Fatalf("got findings %+v, want one %s from check %s", found, test.level, test.check)
			}
			text := fmt.Sprintf("%+v", found[0])
			for _, says := range test.says {
				if !strings.Contains(text, says) {
					t.Errorf("want %q in %s", says, text)
				}
			}
			if found[0].Why == "" || found[0].Do == "" && test.level != Unknown {
				t.Errorf("the reason or the fix is missing: %s", text)
			}
		})
	}
}

// loseInterface attaches a device to the pod and then reports its interface as missing.
func loseInterface(n *testNode) {
	n.answers.Claims[0].Devices = []nodestate.HeldDevice{{Pool: "worker-1/eth1", Name: "eth1v0"}}
	n.answers.Sandboxes[0].Interfaces = []nodestate.Interface{{ClaimUID: heldClaim, Pool: "worker-1/eth1",
		Device: "eth1v0", Interface: "net1", Missing: "net1"}}
}

// left returns the leftover from a failed cleanup. Its device may be quarantined.
func left(quarantined bool) executor.Leftover {
	return executor.Leftover{
		Key: "key", Reason: "device or resource busy", OnHost: !quarantined,
		Attachment: executor.Attachment{Pod: executor.Pod{Namespace: "ns", Name: "old"}, Steps: []executor.StepRecord{{
			Topology: "fast", Step: cnichain.PlanStep{Name: "link", Type: "sriov",
				Device: &cnichain.Device{Name: "eth1v0", PCIAddress: "0000:03:00.2", Exclusive: true}},
		}}},
	}
}

func condition(n *testNode, kind string, status metav1.ConditionStatus) {
	conditions := slices.Clone(n.answers.State.Topologies[0].Conditions)
	for i := range conditions {
		if conditions[i].Type == kind {
			conditions[i].Status = status
		}
	}
	n.answers.State.Topologies[0].Conditions = conditions
}

// Some healthy configurations look like faults.
func TestNoFault(t *testing.T) {
	for name, plant := range map[string]func(*testNode){
		"containerd and kubelet of a pod": func(n *testNode) {
			for pid, name := range map[string]string{"1": "containerd", "2": "kubelet"} {
				n.write("proc/"+pid+"/comm", name+"\n")
				n.write("proc/"+pid+"/cmdline", name+"\x00--config=/run/inner.toml\x00--root-dir=/inner\x00")
				n.write("proc/"+pid+"/status", "Name:\t"+name+"\nNSpid:\t"+pid+"\t7\n")
			}
		},
		"a plugin that is a symlink to an absolute path": func(n *testNode) {
			n.remove("opt/cni/bin/macvlan")
			n.plugin("usr/libexec/cni/macvlan", 0o755)
			if err := os.Symlink("/usr/libexec/cni/macvlan", filepath.Join(n.root, "opt/cni/bin/macvlan")); err != nil {
				n.Fatal(err)
			}
		},
		"a link type whose module is not loaded yet": func(n *testNode) {
			n.lacksMacvlan = true
			n.write("proc/sys/kernel/osrelease", "6.12.9-amd64\n")
			n.write("lib/modules/6.12.9-amd64/modules.alias",
				"# Aliases extracted from modules themselves.\nalias rtnl-link-vlan 8021q\n"+
					"alias rtnl-link-macvlan macvlan\n")
		},
		"an obsolete setting of containerd": func(n *testNode) {
			n.containerd("[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = false\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := healthy(t)
			plant(n)
			if diff := cmp.Diff([]Finding{}, bad(n.examine())); diff != "" {
				t.Errorf("wrong findings (-want +got):\n%s", diff)
			}
		})
	}
}

// If the API server is down, a restarted driver has neither its Node object nor the topologies. This is not the
// driver's fault.
func TestDriverWithoutCaches(t *testing.T) {
	n := healthy(t)
	n.answers.State.Synced, n.answers.State.NodeFound, n.answers.State.Topologies = false, false, nil
	n.answers.State.NotReady = []string{"the node's devices are not known yet"}
	n.answers.State.Versions = nodestate.Versions{}
	n.answers.Inputs.Policies = nil
	var unknown []string
	for _, f := range bad(n.examine()) {
		switch {
		case f.Level == Unknown:
			unknown = append(unknown, f.Check)
		case f.Check != "driver-ready":
			t.Errorf("unexpected finding %+v", f)
		}
	}
	if diff := cmp.Diff([]string{"node-name", "runtime-version", "cni-plugins", "plugin-folders", "link-types",
		"policies", "topologies"}, unknown); diff != "" {
		t.Errorf("wrong unknown checks (-want +got):\n%s", diff)
	}
}

// After losing a journal, the driver keeps CDI specs with metadata, so they are not reported as leftovers.
func TestMetadataAfterALostJournal(t *testing.T) {
	n := healthy(t)
	n.write("var/lib/kubelet/plugins/dra.networking/journal.db.unreadable-20260101T000000", "")
	n.write("run/cdi/"+nodeapi.MetadataName(goneClaim, "r"), "{}")
	found := bad(n.examine())
	if len(found) != 1 || found[0].Check != "journal" {
		t.Errorf("got findings %+v, want one from check journal", found)
	}
}

// If the driver does not answer, the reason is reported once, and checks that need the driver's data do not run.
func TestWithoutTheDriver(t *testing.T) {
	for name, test := range map[string]struct {
		plant func(*testNode)
		says  string
	}{
		"not running":   {func(n *testNode) { n.remove("proc/30") }, "the driver is not running on this node"},
		"not answering": {func(*testNode) {}, "the driver is running but does not answer"},
		"not working":   {func(n *testNode) { n.ready = "not ready: cannot open journal" }, "cannot open journal"},
	} {
		t.Run(name, func(t *testing.T) {
			n := healthy(t)
			n.silent = true
			test.plant(n)
			for _, f := range bad(n.examine()) {
				switch {
				case f.Check == "driver-answers" && strings.Contains(f.What+f.Why, test.says) && f.Level == Fail:
				case f.Level == Unknown && f.Why == "the driver does not answer":
				default:
					t.Errorf("unexpected finding %+v", f)
				}
			}
		})
	}
}

// The other checks still run on a node without containerd, a kubelet or an API server.
func TestMissingComponents(t *testing.T) {
	n := healthy(t)
	n.remove("proc/10", "proc/20", "etc/containerd")
	var unknown []string
	for _, f := range bad(n.examine()) {
		if f.Level != Unknown {
			t.Errorf("unexpected finding %+v", f)
		}
		unknown = append(unknown, f.Check)
	}
	want := []string{"nri-enabled", "nri-socket", "nri-timeout", "nri-required", "cdi", "kubelet-directory"}
	if diff := cmp.Diff(want, unknown); diff != "" {
		t.Errorf("wrong unknown checks (-want +got):\n%s", diff)
	}
}

// Files that appear or disappear while doctor is reading the node are not reported as leftovers.
func TestConcurrentPods(t *testing.T) {
	n := healthy(t)
	n.answers.Claims[0].Unused = true
	later := n.answers
	later.Claims = append(slices.Clone(n.answers.Claims),
		nodestate.Claim{ClaimRecord: nodestate.ClaimRecord{Claim: cnichain.Claim{Namespace: "ns", Name: "new",
			UID: goneClaim}}})
	later.Claims[0].Unused = false
	later.Sandboxes = append(slices.Clone(n.answers.Sandboxes),
		nodestate.Sandbox{ID: "bbbb", State: "ready", Pin: "/var/run/netns/dra-bbbb.cre66i9s"})
	n.later = &later
	n.write("run/cdi/dra.networking-"+goneClaim+".json", "{}")
	n.write("run/netns/dra-bbbb.cre66i9s", "")
	if diff := cmp.Diff([]Finding{}, bad(n.examine())); diff != "" {
		t.Errorf("wrong findings (-want +got):\n%s", diff)
	}
}

func TestContainerdConfigurations(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  func(*Runtime)
	}{
		"none": {nil, func(*Runtime) {}},
		"drop-ins only": {map[string]string{
			"etc/containerd/conf.d/a.toml": "[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true\n",
		}, func(c *Runtime) { c.NRIDisabled = true }},
		"version 2": {map[string]string{"etc/containerd/config.toml": "version = " +
			"2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = " +
			"false\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/usr/lib/cni\"\n"},
			func(c *Runtime) { c.CDIDisabled, c.CNIDirs = true, []string{"/usr/lib/cni"} }},
		"recursive import": {map[string]string{"etc/containerd/config.toml": "imports = " +
			"[\"/etc/containerd/*.toml\", \"none.toml\"]\n"}, func(*Runtime) {}},
		"others' settings": {map[string]string{"etc/containerd/config.toml": "[plugins.\"other\"]\ndisable = " +
			"\"maybe\"\n"}, func(*Runtime) {}},
		"not TOML": {map[string]string{"etc/containerd/config.toml": "= 1"},
			func(c *Runtime) { c.Problem = "cannot read" }},
		"no duration": {map[string]string{
			"etc/containerd/config.toml": "[plugins.\"io.containerd.nri.v1.nri\"]\nplugin_request_timeout = \"soon\"\n",
		}, func(c *Runtime) { c.Problem = "cannot read" }},
		"wrong type": {map[string]string{"etc/containerd/config.toml": "plugins = 3\n"}, func(*Runtime) {}},
	} {
		t.Run(name, func(t *testing.T) {
			n := &testNode{T: t, root: t.TempDir()}
			n.write("etc/hosts", "")
			for file, content := range test.files {
				n.write(file, content)
			}
			want := &Runtime{Name: containerdName, File: containerdFile, NRISocket: "/var/run/nri/nri.sock",
				NRITimeout: 2 * time.Second,
				CDIDirs:    []string{"/etc/cdi", "/var/run/cdi"}, CNIDirs: []string{"/opt/cni/bin"}, NetworkDir: networkDir}
			test.want(want)
			got := readContainerd(n.fs(), containerdFile)
			if strings.HasPrefix(got.Problem, "cannot read") {
				got.Problem = "cannot read"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong configuration (-want +got):\n%s", diff)
			}
		})
	}
}

// Only the RDMA parts of published NICs are checked. If all of these parts have a driver, the check reports the
// namespace mode of RDMA devices.
func TestRDMA(t *testing.T) {
	const idle = "no RDMA driver is loaded for "
	for name, test := range map[string]struct {
		arrange func(n *testNode)
		want    []string
	}{
		"no RDMA": {func(*testNode) {}, []string{"ok the RDMA drivers of all published devices are loaded"}},
		"shared": {func(n *testNode) {
			n.auxiliary("mlx5_core.rdma.1", "0000:03:00.2", "mlx5_ib.rdma")
			n.answers.Published[1].Device.RDMANetns = discovery.RDMAShared
		}, []string{"ok RDMA devices are shared by all network namespaces, and cannot be moved to a pod"}},
		"exclusive": {func(n *testNode) { n.answers.Published[1].Device.RDMANetns = discovery.RDMAExclusive },
			[]string{"ok each RDMA device belongs to one network namespace, and can be moved to a pod"}},
		"other parts and NICs": {func(n *testNode) {
			n.auxiliary("mlx5_core.eth.1", "0000:03:00.2", "")
			n.auxiliary("mlx5_core.rdma.2", "0000:07:00.0", "")
			n.auxiliary("strange", "0000:03:00.2", "")
			n.auxiliary("mlx5_core.rdma-rep.1", "0000:03:00.2", "")
			n.write("sys/bus/auxiliary/devices/ice.roce.7", "no link")
		}, []string{"ok the RDMA drivers of all published devices are loaded"}},
		"several": {func(n *testNode) {
			for i := range 4 {
				entry := n.answers.Published[1]
				entry.Name = fmt.Sprintf("eth2v%d", i)
				entry.Device.Name = discovery.IfName(entry.Name)
				entry.Device.PCIAddress = discovery.PCIAddress(fmt.Sprintf("0000:05:00.%d", i))
				n.answers.Published = append(n.answers.Published, entry, entry) // one shared, one exclusive
				n.auxiliary(fmt.Sprintf("ice.roce.%d", i), string(entry.Device.PCIAddress), "")
			}
			n.auxiliary("bnxt_en.rdma.0", "0000:03:00.2", "")
		}, []string{"warn " + idle + "eth1v0", "warn " + idle + "eth2v0, eth2v1, eth2v2, eth2v3"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := healthy(t)
			test.arrange(n)
			var got []string
			for _, finding := range n.examine() {
				if finding.Check == "rdma" {
					got = append(got, string(finding.Level)+" "+finding.What)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("wrong rdma findings (-want +got):\n%s", diff)
			}
		})
	}
}

// Every check has a unique name, and every known fault has a source and a version range.
func TestTablesAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range checks() {
		if seen[c.name] || c.name == "" || c.fine == "" || c.group == "" {
			t.Errorf("check %q is a duplicate or incomplete", c.name)
		}
		seen[c.name] = true
	}
	for _, f := range faults() {
		if f.source == "" || f.do == "" || f.why == "" || len(checkVersion(f.component, f.first)) == 0 ||
			slices.ContainsFunc(checkVersion(f.component, f.before),
				func(found Finding) bool { return strings.Contains(found.What, f.what) }) {
			t.Errorf("fault is incomplete or has the wrong versions: %+v", f)
		}
	}
}
