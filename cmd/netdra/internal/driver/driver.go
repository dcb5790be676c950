// Package driver has what the driver of a node says on its socket, as far as netdra uses it.
package driver

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Answers are all that it says.
type Answers struct {
	State     State               // GET /state
	Beliefs   Beliefs             // GET /policies
	Published []draslices.Entry   // GET /published
	Claims    []Claim             // GET /claims
	Sandboxes []Sandbox           // GET /sandboxes
	Leftovers []executor.Leftover // GET /leftovers
}

// State is the driver itself and its surroundings.
type State struct {
	Version    string        `json:"version,omitempty"` // of the driver, if it says it
	Node       string        `json:"node"`
	Heard      bool          `json:"heard"`               // all of the API server, once
	NodeFound  bool          `json:"nodeFound"`           // by the API server
	Addresses  []netip.Addr  `json:"addresses,omitempty"` // by which the cluster knows the node
	Versions   Versions      `json:"versions"`
	Settings   Settings      `json:"settings"`
	NotReady   []string      `json:"notReady"`
	Problems   []Problem     `json:"problems"`
	SetAside   string        `json:"setAside,omitempty"` // a journal that could not be read
	NRITimeout time.Duration `json:"nriTimeout"`
	CNIPlugins []string      `json:"cniPlugins"` // that the driver sees; nil if it can't list them
	Topologies []Topology    `json:"topologies"`
}

// Versions are those of the Node object.
type Versions struct {
	Kubelet string `json:"kubelet"`
	Runtime string `json:"runtime"` // containerd://2.4.2
	Kernel  string `json:"kernel"`
}

// Settings are paths on the host.
type Settings struct {
	PluginDir    string   `json:"pluginDir"`
	RegistrarDir string   `json:"registrarDir"`
	CNIDirs      []string `json:"cniDirs"`
	NetNSDir     string   `json:"netnsDir"`
	CDIDir       string   `json:"cdiDir"`
	LogDir       string   `json:"logDir"`
	NRISocket    string   `json:"nriSocket"`
}

// Defaults are the settings of the DaemonSet as it is shipped.
func Defaults() Settings {
	return Settings{
		PluginDir: "/var/lib/kubelet/plugins/dra.networking", RegistrarDir: "/var/lib/kubelet/plugins_registry", CNIDirs: []string{"/opt/cni/bin"},
		NetNSDir: "/var/run/netns", CDIDir: "/var/run/cdi", LogDir: "/var/log/dra-network", NRISocket: "/var/run/nri/nri.sock",
	}
}

// Problem is what an administrator should put right.
type Problem struct {
	Source string `json:"source"`
	Policy string `json:"policy,omitempty"`
	Text   string `json:"text"`
}

// Topology is a NetworkTopology of the cluster.
type Topology struct {
	Name       string             `json:"name"`
	Conditions []metav1.Condition `json:"conditions"`
	Plugins    []string           `json:"plugins"`
	Drivers    []string           `json:"drivers,omitempty"`
}

// Beliefs are what the node's devices are judged by.
type Beliefs struct {
	Node     string                           `json:"node"`
	Labels   map[string]string                `json:"labels"`
	Policies []policyapi.DeviceExposurePolicy `json:"policies"`
}

// Claim is a claim that is prepared on the node.
type Claim struct {
	Claim cnichain.Claim `json:"claim"`
	// PreparedAt is zero if it is not known.
	PreparedAt time.Time       `json:"preparedAt,omitzero"`
	Devices    []Device        `json:"devices"`
	Plans      []cnichain.Plan `json:"plans"`
	Forsaken   bool            `json:"forsaken,omitempty"`
}

// Device is one that a claim holds.
type Device struct {
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Name    string `json:"name"`
	// Consumed is what the claim was given of the device's counters.
	Consumed map[resourceapi.QualifiedName]resource.Quantity `json:"consumed,omitempty"`
}

// Sandbox is a pod sandbox with claims.
type Sandbox struct {
	ID         string       `json:"id"`
	Pod        executor.Pod `json:"pod"`
	Claims     []string     `json:"claims"` // UIDs
	State      string       `json:"state"`  // attaching, ready or detaching; of an attempt that only the log knows, ended
	Since      time.Time    `json:"since"`
	Pin        string       `json:"pin"`
	Interfaces []Interface  `json:"interfaces,omitempty"`
	Failure    string       `json:"failure,omitempty"`
}

// Interface is the final interface of a claim's device in a pod.
type Interface struct {
	ClaimUID    string   `json:"claimUID"`
	Pool        string   `json:"pool"`
	Device      string   `json:"device"`
	Interface   string   `json:"interface,omitempty"`
	MAC         string   `json:"mac,omitempty"`
	IPs         []string `json:"ips,omitempty"`
	DeviceNodes []string `json:"deviceNodes,omitempty"`
	// Missing is an interface of the device that was attached and is not in the pod any more; empty if none is missing.
	Missing string `json:"missing,omitempty"`
}

// Holds says whether the claim holds a published device.
func (c *Claim) Holds(pool, name string) bool {
	return slices.ContainsFunc(c.Devices, func(d Device) bool { return d.Pool == pool && d.Name == name })
}

// LostText says that an interface of the sandbox's pod is missing, and what to do.
func (s *Sandbox) LostText(missing string) string {
	return fmt.Sprintf("interface %s is not in pod %s any more: the device or what it stands on was removed, or an application has moved it; "+
		"delete the pod to have it attached anew", missing, s.Pod)
}

// Sandboxes are those with the claim.
func (c *Claim) Sandboxes(all []Sandbox) []Sandbox {
	var with []Sandbox
	for i := range all {
		if slices.Contains(all[i].Claims, c.Claim.UID) {
			with = append(with, all[i])
		}
	}
	return with
}
