// Package nodestate defines the types that the node driver serves as JSON to netdra on its socket.
//
// Invariant: it contains only types, each defined once for both sides. The JSON names are a contract
// between different versions of the driver and netdra; the names in [ClaimRecord] must also match the journals of
// earlier drivers.
package nodestate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/discovery/nodeattributes"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Answers contains everything that the driver serves. Each field is served at its own path.
type Answers struct {
	State     State               // nodeapi.PathState
	Inputs    PolicyInputs        // nodeapi.PathPolicies
	Published []draslices.Entry   // nodeapi.PathPublished
	Claims    []Claim             // nodeapi.PathClaims
	Sandboxes []Sandbox           // nodeapi.PathSandboxes
	Leftovers []executor.Leftover // nodeapi.PathLeftovers
}

// State is the state of the driver and its environment.
type State struct {
	Node string `json:"node"`
	// Version is the version of the driver; it is empty if the driver does not report it.
	Version string `json:"version,omitempty"`
	// Synced is true once all objects have been read from the API server. Until then, the node and the topologies are
	// unknown.
	Synced bool `json:"synced"`
	// NodeFound is true if the Node object exists in the API server.
	NodeFound bool `json:"nodeFound"`
	// Addresses are the addresses in the Node object. Links with these addresses are never offered.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Versions  Versions     `json:"versions"`
	Settings  Settings     `json:"settings"`
	// NotReady lists the conditions that prevent pods with claims from starting.
	NotReady []string `json:"notReady"`
	// Problems are the problems that an administrator must fix.
	Problems []Problem `json:"problems"`
	// SetAside is the path of a journal that could not be read when the driver started.
	SetAside string `json:"setAside,omitempty"`
	// NRITimeout is how long the container runtime waits for an NRI plugin; it is zero before the first connection.
	NRITimeout time.Duration `json:"nriTimeout"`
	// MissingFacts are the facts that the driver needs and that the container runtime does not report.
	MissingFacts []string `json:"missingFacts,omitempty"`
	// AttributeFiles are the files that currently provide device attributes.
	AttributeFiles []nodeattributes.File `json:"attributeFiles,omitempty"`
	// CNIPlugins are the plugins that are visible in the driver's container, which may differ from those on the node.
	// It is nil if the driver cannot list them.
	CNIPlugins []string `json:"cniPlugins"`
	// UnusableCNIs maps the CNI type of each installed plugin that a policy uses but that cannot work on the node to
	// the reason.
	UnusableCNIs map[string]string `json:"unusableCNIs,omitempty"`
	// MissingInterpreters contains, by CNI type, the program interpreter of each dynamically linked plugin of a topology
	// that does not exist in the driver's container.
	MissingInterpreters map[string]string `json:"missingInterpreters,omitempty"`
	Topologies          []Topology        `json:"topologies"`
	// HostPaths are the host paths that plugins require, by CNI type, according to the built-in schemas and the schemas
	// in the cluster; nil if the driver does not report them.
	HostPaths map[string][]string `json:"hostPaths,omitempty"`
	// LinkTypes maps CNI types to the types of the links that the plugin creates. It is nil if the driver does not
	// report them.
	LinkTypes map[string][]string `json:"linkTypes,omitempty"`
	// PodAnnotations maps CNI types to the annotation with which pods select networks for the plugin. It is nil if the
	// driver does not report them.
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`
	// Refused lists the claims that pods are waiting for and that the driver rejected when the kubelet last tried to
	// prepare them.
	Refused []RefusedClaim `json:"refused,omitempty"`
}

// RefusedClaim is a claim that could not be prepared. Between the kubelet's attempts, which can be minutes apart, it is
// the only record of the claim.
type RefusedClaim struct {
	Claim cnichain.Claim `json:"claim"`
	// Devices lists the devices that remain allocated to the claim although it was rejected. It is nil if the driver
	// does not report them.
	Devices []AllocatedDevice `json:"devices,omitempty"`
	// Pods are the pods on the node that are waiting for the claim, as namespace/name.
	Pods    []string `json:"pods"`
	Message string   `json:"message"`
	// At is the time of the last rejection.
	At time.Time `json:"at"`
}

// AllocatedDevice is a device that the scheduler has allocated to a claim.
type AllocatedDevice struct {
	Pool string `json:"pool"`
	Name string `json:"name"`
	// Consumed contains the amounts of the device's counters that are allocated to the claim.
	Consumed map[resourceapi.QualifiedName]resource.Quantity `json:"consumed,omitempty"`
}

// Holding is a claim that holds devices. Even a claim that could not be prepared blocks its devices for other claims.
type Holding struct {
	Claim   cnichain.Claim
	Devices []AllocatedDevice
	// Pods lists, as namespace/name, the pods that are waiting for the claim if it could not be prepared.
	Pods []string
	// Refused is the reason why the claim could not be prepared; it is empty if the claim was prepared.
	Refused string
	// Since is the time when the claim was prepared or rejected.
	Since time.Time
}

// Holdings returns the prepared claims, followed by the rejected ones.
func Holdings(prepared []Claim, refused []RefusedClaim) []Holding {
	holdings := make([]Holding, 0, len(prepared)+len(refused))
	for i := range prepared {
		holding := Holding{Claim: prepared[i].Claim, Since: prepared[i].PreparedAt}
		for j := range prepared[i].Devices {
			held := &prepared[i].Devices[j]
			holding.Devices = append(holding.Devices, AllocatedDevice{Pool: held.Pool, Name: held.Name,
				Consumed: held.Consumed})
		}
		holdings = append(holdings, holding)
	}
	for i := range refused {
		r := &refused[i]
		holdings = append(holdings, Holding{Claim: r.Claim, Devices: r.Devices, Pods: r.Pods, Refused: r.Message,
			Since: r.At})
	}
	return holdings
}

// Holds reports whether the claim holds a published device.
func (h *Holding) Holds(pool, name string) bool {
	return slices.ContainsFunc(h.Devices, func(d AllocatedDevice) bool { return d.Pool == pool && d.Name == name })
}

// Versions contains the component versions from the Node object.
type Versions struct {
	Kubelet string `json:"kubelet"`
	Runtime string `json:"runtime"` // including the name: containerd://2.4.2
	Kernel  string `json:"kernel"`
}

// Settings are the host paths that the driver uses.
type Settings struct {
	PluginDir    string   `json:"pluginDir"`
	RegistrarDir string   `json:"registrarDir"`
	CNIDirs      []string `json:"cniDirs"`
	NetNSDir     string   `json:"netnsDir"`
	CDIDir       string   `json:"cdiDir"`
	LogDir       string   `json:"logDir"`
	NRISocket    string   `json:"nriSocket"`
	// DeviceInfoDir is empty if the driver does not report it.
	DeviceInfoDir string `json:"deviceInfoDir,omitempty"`
}

// Problem is a problem with the node's devices that an administrator can fix.
type Problem struct {
	Source string `json:"source"`
	Policy string `json:"policy,omitempty"`
	Text   string `json:"text"`
	// Remark is true if the problem does not affect which devices are offered.
	Remark bool `json:"remark,omitempty"`
}

// Topology contains the parts of a NetworkTopology that are relevant for a node.
type Topology struct {
	Name string `json:"name"`
	// Conditions are the conditions set by the controller.
	Conditions []metav1.Condition `json:"conditions"`
	// Plugins are the CNI plugins that the topology runs.
	Plugins []string `json:"plugins"`
	// Drivers are the kernel drivers that the topology binds devices to.
	Drivers []string `json:"drivers,omitempty"`
}

// PolicyInputs contains the policies and everything else that is needed to evaluate them.
type PolicyInputs struct {
	Node     string                           `json:"node"`
	Labels   map[string]string                `json:"labels"`
	Policies []policyapi.DeviceExposurePolicy `json:"policies"`
}

// Claim is a prepared claim.
type Claim struct {
	ClaimRecord
	// Unused is true if no pod on the node uses the claim: the kubelet is about to release the claim or has forgotten
	// it.
	Unused bool `json:"unused,omitempty"`
}

// These are the states of a sandbox.
const (
	SandboxAttaching = "attaching"
	SandboxReady     = "ready"
	SandboxDetaching = "detaching"
	// SandboxEnded is the state of a sandbox that could not be attached and is being removed. The kubelet will create
	// another sandbox.
	SandboxEnded = "ended"
)

// Sandbox is a pod sandbox with claims.
type Sandbox struct {
	ID     string       `json:"id"`
	Pod    executor.Pod `json:"pod"`
	Claims []string     `json:"claims"` // UIDs
	State  string       `json:"state"`  // one of the constants above
	// Since is the time when attaching began or, if the sandbox is being detached, when detaching began.
	Since time.Time `json:"since"`
	// Pin is the path at which the sandbox's network namespace is pinned.
	Pin string `json:"pin"`
	// Interfaces lists the interfaces of the sandbox if it is ready.
	Interfaces []Interface `json:"interfaces,omitempty"`
	// Failure is the error from the last failed attempt to attach, possibly from the pod's previous sandbox.
	Failure string `json:"failure,omitempty"`
	// FailureHint is the remedy for the failure if the node's kernel appears to lack a required feature.
	FailureHint string `json:"failureHint,omitempty"`
	// DetachFailure is the error from the last attempt to detach the sandbox or one of its claims. The driver will
	// retry.
	DetachFailure string `json:"detachFailure,omitempty"`
}

// WithHint returns the failure together with its hint.
func (s *Sandbox) WithHint() string {
	if s.FailureHint == "" {
		return s.Failure
	}
	return s.Failure + "; " + s.FailureHint
}

// Failures returns the reasons why the sandbox has not been attached, with a hint, and why it has not been detached.
func (s *Sandbox) Failures() string {
	switch {
	case s.DetachFailure == "":
		return s.WithHint()
	case s.Failure == "":
		return s.DetachFailure
	}
	return s.WithHint() + "; and it could not be undone yet: " + s.DetachFailure
}

// Interface is the final interface of a claim's device in the pod. Its JSON names match those in the claim's status.
type Interface struct {
	ClaimUID    string   `json:"claimUID"`
	Pool        string   `json:"pool"`
	Device      string   `json:"device"`
	Interface   string   `json:"interface,omitempty"`
	MAC         string   `json:"mac,omitempty"`
	IPs         []string `json:"ips,omitempty"`
	DeviceNodes []string `json:"deviceNodes,omitempty"`
	// RDMA describes how applications address the device's RDMA devices. RDMAUnknown is the reason why GIDs are
	// missing.
	RDMA        []cnichain.VerbsDevice `json:"rdma,omitempty"`
	RDMAUnknown string                 `json:"rdmaUnknown,omitempty"`
	// Missing is the first interface in the device's chain that was attached but is no longer in the pod; it is empty
	// if none is missing.
	Missing string `json:"missing,omitempty"`
}

// These are the kinds of orphans, in addition to the kinds of CDI specs in nodeapi.
const (
	// OrphanNamespace is the kind for the pin of a network namespace.
	OrphanNamespace = "network namespace"
	// OrphanLog is the kind for the CNI log of a claim.
	OrphanLog = "CNI log"
)

// Orphan is a file on the node that no longer has an owner. Orphans exist only after crashes and faults, since files
// are normally removed together with their claim or sandbox.
type Orphan struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
	// Claim is the UID of the claim that owned the file.
	Claim string `json:"claim,omitempty"`
	// Error is the reason why the file could not be removed.
	Error string `json:"error,omitempty"`
}

// Holds reports whether the claim holds a published device.
func (r *ClaimRecord) Holds(pool, name string) bool {
	return slices.ContainsFunc(r.Devices, func(d HeldDevice) bool { return d.Pool == pool && d.Name == name })
}

// Sandboxes returns the given sandboxes that use the claim.
func (r *ClaimRecord) Sandboxes(all []Sandbox) []Sandbox {
	unused := func(s Sandbox) bool { return !slices.Contains(s.Claims, r.Claim.UID) }
	return slices.DeleteFunc(slices.Clone(all), unused)
}

// MissingText returns the message that reports that an interface is missing from the sandbox's pod.
func (s *Sandbox) MissingText(name string) string { return MissingText("pod "+s.Pod.String(), name) }

// MissingText returns the message that reports that attached interfaces are no longer in their pod and explains how to
// fix this. The same message is used in events, conditions, device health and netdra. pod is "pod ns/name", or "the
// pod" if the context identifies the pod.
func MissingText(pod string, names ...string) string {
	subject, verb := "interface", "is"
	if len(names) > 1 {
		subject, verb = "interfaces", "are"
	}
	return fmt.Sprintf("%s %s %s no longer in %s: a device or a link below it was removed, or an application has "+
		"moved it; restore the device if it is missing, and delete the pod: its replacement gets the interface",
		subject, strings.Join(names, ", "), verb, pod)
}
