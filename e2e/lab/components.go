package lab

import (
	"fmt"
	"path/filepath"
)

// Component is the name of a program in the cluster. The program's binary and its log have the same name.
type Component string

// The components of a cluster.
const (
	Etcd              Component = "etcd"
	Containerd        Component = "containerd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kubelet           Component = "kubelet"
)

// Components returns all components in start order. The order matters only if all code is emulated and each component
// waits for the previous one (see Pack). Otherwise, several components start concurrently.
func Components() []Component {
	return []Component{Etcd, Containerd, APIServer, ControllerManager, Scheduler, Kubelet}
}

// health returns the URL of a component's health endpoint, or an empty string for container runtimes. The ports are the
// components' default ports. All addresses are valid in the component's network namespace.
func (c Component) health() string {
	switch c {
	case Etcd:
		return etcdURL + "/health"
	case APIServer:
		return apiURL + "/readyz"
	case ControllerManager:
		return "https://127.0.0.1:10257/healthz"
	case Scheduler:
		return "https://127.0.0.1:10259/healthz"
	case Kubelet:
		return "http://127.0.0.1:10248/healthz"
	default:
		return ""
	}
}

// commandLine returns the command line for a component, starting with the program. The same options always produce the
// same command line, so a component is restarted with identical arguments.
func commandLine(c Component, o Options, b Binaries) ([]string, error) {
	var args []string
	switch c {
	case Etcd:
		args = etcdArgs(o)
	case Containerd:
		args = []string{"--config=" + filepath.Join(o.RunDir, containerdFile)}
	case APIServer:
		args = apiServerArgs(o)
	case ControllerManager:
		args = controllerManagerArgs(o)
	case Scheduler:
		kubeconfig := o.pki("scheduler.kubeconfig")
		args = withGates(o, "--kubeconfig="+kubeconfig, "--bind-address=127.0.0.1", "--leader-elect=false",
			// without these, the scheduler only serves health checks
			"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
			// with the defaults, the scheduler schedules only ten pods with claims per second
			"--kube-api-qps=500", "--kube-api-burst=1000")
	case CRIO:
		return []string{filepath.Join(o.CRIODir, string(c)), "--config=" + filepath.Join(o.RunDir, crioFile),
			"--config-dir="}, nil
	case Kubelet:
		args = kubeletArgs(o)
	default:
		return nil, fmt.Errorf("unknown component %q: use one of %v", c, Components())
	}
	return append([]string{b.Path(string(c))}, args...), nil
}

func (o Options) pki(name string) string {
	return filepath.Join(o.RunDir, pkiDir, name)
}

func withGates(o Options, args ...string) []string {
	if len(o.FeatureGates) > 0 {
		args = append(args, "--feature-gates="+gates(o.FeatureGates))
	}
	return args
}

// etcdData returns etcd's data directory. etcd memory-maps its data, which is not possible in a directory that a
// virtual machine shares with its host.
func (o Options) etcdData() string {
	if o.allElsewhere {
		return "/var/lib/etcd"
	}
	return filepath.Join(o.RunDir, etcdDir)
}

// etcdArgs returns the arguments for etcd. They disable syncing to disk: a cluster does not survive a reboot of the
// machine anyway, and on a slow disk, etcd would spend most of its time in fsync.
func etcdArgs(o Options) []string {
	const peer = "http://127.0.0.1:2380"
	return []string{
		"--name=lab", "--data-dir=" + o.etcdData(), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer,
	}
}

// apiServerArgs returns the arguments for the API server. Authorization and admission are configured as on real
// clusters.
func apiServerArgs(o Options) []string {
	args := withGates(o,
		"--etcd-servers="+etcdURL,
		// Process 1 has added the first Service address to the loopback interface, so pods can reach the API server
		// even though Service addresses are not translated.
		"--bind-address="+apiAddress, "--secure-port=443",
		// A Service endpoint must not be a loopback address, so advertise the node's address and do not create the
		// endpoint.
		"--advertise-address="+nodeAddress, "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range="+serviceRange,
		"--enable-aggregator-routing=true", // without kube-proxy, webhooks must be called at pod addresses
		"--allow-privileged=true",
		// As on real clusters, because the tests also cover the permissions granted to the driver's token and the
		// kubelet's certificate.
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file="+o.pki("ca.crt"),
		"--tls-cert-file="+o.pki("apiserver.crt"), "--tls-private-key-file="+o.pki("apiserver.key"),
		"--kubelet-certificate-authority="+o.pki("ca.crt"), "--kubelet-preferred-address-types=Hostname",
		"--kubelet-client-certificate="+o.pki("apiserver-kubelet.crt"), "--kubelet-client-key="+
			o.pki("apiserver-kubelet.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+o.pki("sa.pub"), "--service-account-signing-key-file="+o.pki("sa.key"),
	)
	if o.ControlPlaneOnly { // no component would remove the taint that this plugin adds to new nodes
		args = append(args, "--disable-admission-plugins=TaintNodesByCondition")
	}
	if len(o.RuntimeConfig) > 0 {
		args = append(args, "--runtime-config="+settings(o.RuntimeConfig, func(v string) string { return v }))
	}
	return args
}

// controllerManagerArgs returns the arguments for the controller manager. There is only one controller manager, so
// leader election is off.
func controllerManagerArgs(o Options) []string {
	args := withGates(o,
		"--kubeconfig="+o.pki("controller-manager.kubeconfig"), "--bind-address=127.0.0.1", "--leader-elect=false",
		"--use-service-account-credentials=true",
		"--kube-api-qps=500", "--kube-api-burst=1000", // with the defaults, startup takes 6 s longer
		"--flex-volume-plugin-dir="+volumePluginDir,
		"--root-ca-file="+o.pki("ca.crt"), "--service-account-private-key-file="+o.pki("sa.key"),
	)
	if o.ControlPlaneOnly { // no kubelet renews its node's lease
		args = append(args, "--controllers=*,-node-lifecycle-controller")
	}
	return args
}

// kubeletArgs returns arguments for the kubelet settings that its configuration file does not support.
func kubeletArgs(o Options) []string {
	args := []string{
		"--config=" + filepath.Join(o.RunDir, kubeletFile), "--kubeconfig=" + o.pki("kubelet.kubeconfig"),
		"--hostname-override=" + o.NodeName, "--node-ip=" + o.address(), "--v=2",
	}
	if len(o.NodeLabels) > 0 {
		args = append(args, "--node-labels="+settings(o.NodeLabels, func(v string) string { return v }))
	}
	return args
}
