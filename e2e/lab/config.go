package lab

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Addresses inside the node's network namespace. They are not visible outside the cluster.
const (
	apiAddress     = "10.96.0.1" // the first Service IP, so that pods find the API server without kube-proxy
	apiURL         = "https://" + apiAddress + ":443"
	serviceRange   = "10.96.0.0/24"
	nodeAddress    = "10.88.0.1"
	podSubnet      = "10.88.0.0/16"
	podRangeStart  = "10.88.1.10"
	subnetBits     = "/16" // for all nodes and pods
	bridgeName     = "node0"
	gatewayAddress = "10.88.0.2" // next hop on the way to the API server for a node on a separate machine
	etcdURL        = "http://127.0.0.1:2379"
)

// containerdSocket is the path of containerd's socket on the node.
const containerdSocket = "/run/containerd/containerd.sock"

// defaultNRITimeout is containerd's default (DefaultPluginRequestTimeout in nri). It is set explicitly so that a change
// to the default does not silently affect tests.
const defaultNRITimeout = 2 * time.Second

// volumePluginDir is created by the kubelet and the controller manager. The default path is below /usr, which belongs
// to the host.
const volumePluginDir = "/var/lib/kubelet/volume-plugins"

// containerdConfig renders containerd's configuration. The OOM score cannot be lowered without CAP_SYS_RESOURCE, which
// is not available on CI machines, and AppArmor profiles cannot be loaded from inside the namespaces. imports is empty
// because, by default, containerd would import the files in /etc/containerd/conf.d, which the node shares with the
// host. The cgroup driver must match the kubelet's, which is cgroupfs because systemd does not run on the node. The
// sandbox image is pinned: otherwise, the kubelet's image garbage collection could remove it, and it cannot be pulled
// again. An empty baseSpec means containerd's default.
func containerdConfig(runc, baseSpec string, nriTimeout time.Duration) string {
	return fmt.Sprintf(`version = 4
root = "/var/lib/containerd"
state = "/run/containerd"
imports = []

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %q

[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  enable_cdi = true

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = %q

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = %s
  SystemdCgroup = false

[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "/var/run/nri/nri.sock"
  plugin_request_timeout = %q
`, PauseImage, baseSpec, strconv.Quote(runc), cmp.Or(nriTimeout, defaultNRITimeout))
}

// kubeletConfig renders the kubelet's configuration. Most settings make the kubelet faster or isolate it from the
// machine: image pulls and events are not rate-limited, a full host disk does not cause evictions, and static pods are
// checked every second instead of every 20 seconds. The pod limit is above the default of 110, so that tests can fill a
// node. The pods' cgroups are below the cluster's own cgroup, which is removed together with the cluster.
// Authentication and authorization are the same as on real clusters: RBAC determines who may run commands in a pod. The
// kubelet does not create its iptables chains: without kube-proxy, they are not used, and the kernel might not support
// them.
func kubeletConfig(o Options, cgroup string) ([]byte, error) {
	pki := func(name string) string { return filepath.Join(o.RunDir, pkiDir, name) }
	address := "127.0.0.1"
	if o.NodeElsewhere || o.number > 0 {
		address = o.address() // the Machine in Network, or the address for the other nodes
	}
	config := map[string]any{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"address":                  address,
		"healthzBindAddress":       "127.0.0.1",
		"readOnlyPort":             0,
		"containerRuntimeEndpoint": "unix://" + o.runtimeSocket(),
		"authentication": map[string]any{
			"x509":      map[string]any{"clientCAFile": pki("ca.crt")},
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
		},
		"authorization":          map[string]any{"mode": "Webhook"},
		"tlsCertFile":            pki("kubelet-server.crt"),
		"tlsPrivateKeyFile":      pki("kubelet-server.key"),
		"staticPodPath":          filepath.Join(o.RunDir, manifestDir),
		"fileCheckFrequency":     "1s",
		"volumePluginDir":        volumePluginDir,
		"cgroupDriver":           "cgroupfs",
		"cgroupRoot":             "/" + cgroup,
		"failCgroupV1":           false, // many build machines still use cgroup version 1
		"failSwapOn":             false,
		"makeIPTablesUtilChains": false,
		"maxPods":                200,
		"podPidsLimit":           -1,
		"syncFrequency":          o.SyncFrequency.String(),
		"registryPullQPS":        0,
		"eventRecordQPS":         0,
		"serializeImagePulls":    false,
		// A test that kills a container repeatedly must not have to wait longer each time.
		"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "1s"},
		// A full disk on the machine must not cause eviction of a test's pods.
		"imageGCHighThresholdPercent": 100,
		"evictionHard": map[string]any{
			"memory.available": "100Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
	}
	if len(o.FeatureGates) > 0 {
		config["featureGates"] = o.FeatureGates
	}
	return yaml.Marshal(config)
}

// clusterNetwork returns the CNI configuration for the pods' first interface. All nodes share one network, and each
// node has its own address range in it. The plugin uses the bridge created by process 1, and must not add an address to
// it (isGateway). Allocated addresses are recorded in /run, so a reboot releases them together with the pods.
func (o Options) clusterNetwork() (string, error) {
	pods := map[string]any{"subnet": podSubnet, "rangeStart": podRangeStart, "gateway": o.address()}
	if o.number > 0 {
		pods["rangeStart"], pods["rangeEnd"] = podAddress(o.number, 10), podAddress(o.number, 250)
	}
	data, err := json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "lab",
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": bridgeName, "isGateway": false, "ipMasq": false, "hairpinMode": true,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": "/run/cni-ipam",
				"ranges": []any{[]any{pods}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	}, "", "  ")
	return string(data), err
}

// memberAddress returns the address of node number in a multi-node cluster. The control plane has 10.88.0.1, and
// 10.88.0.2 is reserved (gatewayAddress), so the first node has 10.88.0.11.
func memberAddress(number int) string { return podAddress(0, 10+number) }

// podAddress returns an address in the network for all nodes and pods. The pods on the n-th node are in 10.88.n.0, and
// the nodes are in 10.88.0.0.
func podAddress(third, last int) string { return fmt.Sprintf("10.88.%d.%d", third, last) }

// hostsFile returns the content of /etc/hosts. The name of a single node resolves to the loopback interface, on which
// the kubelet listens. In a multi-node cluster, each node resolves the names of all nodes. The API server needs these
// entries to connect to kubelets by node name (--kubelet-preferred-address-types), since there is no other name
// resolution: resolv.conf is empty.
func (o Options) hostsFile(nodes []string) string {
	if len(nodes) == 0 {
		return "127.0.0.1 localhost " + o.NodeName + "\n::1 localhost\n"
	}
	var out strings.Builder
	out.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	for i, name := range nodes {
		fmt.Fprintf(&out, "%s %s\n", memberAddress(i+1), name)
	}
	return out.String()
}
