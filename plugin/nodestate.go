package plugin

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cnichain"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// nodeState is what the socket says of the driver itself and its surroundings, for `netdra doctor`.
type nodeState struct {
	Node string `json:"node"`
	// Version is the driver's.
	Version string `json:"version,omitempty"`
	// Heard says whether all of the API server was read once. While it was not, nothing is known of the node and of topologies.
	Heard bool `json:"heard"`
	// NodeFound says whether the API server has a Node object of that name.
	NodeFound bool `json:"nodeFound"`
	// Addresses are those by which the cluster knows the node: links that carry them are never given away.
	Addresses []string     `json:"addresses,omitempty"`
	Versions  nodeVersions `json:"versions"`
	Settings  settings     `json:"settings"`
	// NotReady is what keeps pods with claims from starting.
	NotReady []string `json:"notReady"`
	// Problems are what an administrator should put right.
	Problems []problemState `json:"problems"`
	// SetAside is where a journal is that could not be read when the driver started.
	SetAside string `json:"setAside,omitempty"`
	// NRITimeout is what the container runtime gives a plugin for a request; zero if it was not connected yet.
	NRITimeout time.Duration `json:"nriTimeout"`
	// CNIPlugins are those that the driver sees, which in its pod may be others than those of the node.
	CNIPlugins []string        `json:"cniPlugins"`
	Topologies []topologyState `json:"topologies"`
}

// nodeVersions are as the Node object has them.
type nodeVersions struct {
	Kubelet string `json:"kubelet"`
	Runtime string `json:"runtime"` // with its name: containerd://2.4.2
	Kernel  string `json:"kernel"`
}

// settings are the paths of the host that the driver works with.
type settings struct {
	PluginDir    string   `json:"pluginDir"`
	RegistrarDir string   `json:"registrarDir"`
	CNIDirs      []string `json:"cniDirs"`
	NetNSDir     string   `json:"netnsDir"`
	CDIDir       string   `json:"cdiDir"`
	LogDir       string   `json:"logDir"`
	NRISocket    string   `json:"nriSocket"`
}

type problemState struct {
	Source string `json:"source"`
	Policy string `json:"policy,omitempty"`
	Text   string `json:"text"`
}

// topologyState is a NetworkTopology as far as a node must fit it.
type topologyState struct {
	Name string `json:"name"`
	// Conditions are those that the controller has set.
	Conditions []metav1.Condition `json:"conditions"`
	// Plugins are the CNI plugins that it runs.
	Plugins []string `json:"plugins"`
	// Drivers are the kernel drivers that it binds devices to.
	Drivers []string `json:"drivers,omitempty"`
}

// state is what is known at this moment.
func (d *Driver) state() nodeState {
	c := &d.config
	state := nodeState{
		Node: c.NodeName, Version: c.Version, Heard: d.cluster.heard(), NotReady: append([]string{}, d.missing()...), Problems: d.publisher.known(),
		SetAside: d.journal.SetAside, NRITimeout: d.nri.requestTimeout(), Topologies: d.cluster.topologyStates(),
		Settings: settings{
			PluginDir: c.PluginDir, RegistrarDir: c.RegistrarDir, CNIDirs: c.CNIDirs, NetNSDir: c.NetNSDir, CDIDir: c.CDIDir, LogDir: c.LogDir, NRISocket: c.NRISocket,
		},
	}
	if plugins, err := binaries(c.CNIDirs); err == nil { // else the publisher says why not
		state.CNIPlugins = sets.List(plugins)
	}
	if node, err := d.cluster.thisNode(); err == nil {
		info := &node.Status.NodeInfo
		state.NodeFound = true
		for _, address := range addresses(node) {
			state.Addresses = append(state.Addresses, address.String())
		}
		state.Versions = nodeVersions{Kubelet: info.KubeletVersion, Runtime: info.ContainerRuntimeVersion, Kernel: info.KernelVersion}
	}
	return state
}

// known are the problems of the last computation.
func (p *publisher) known() []problemState {
	p.mu.Lock()
	defer p.mu.Unlock()
	problems := make([]problemState, 0, len(p.problems))
	for _, problem := range p.problems {
		problems = append(problems, problemState{Source: problem.source, Policy: problem.policy, Text: problem.text})
	}
	return problems
}

// topologyStates are sorted by name.
func (c *cluster) topologyStates() []topologyState {
	byName := map[string]*chainapi.NetworkTopology{}
	for _, item := range c.topologies.GetStore().List() {
		if topology, ok := item.(*chainapi.NetworkTopology); ok {
			byName[topology.Name] = topology
		}
	}
	states := make([]topologyState, 0, len(byName))
	for _, name := range sortedKeys(byName) {
		topology := byName[name]
		state := topologyState{Name: name, Conditions: []metav1.Condition{}, Plugins: cnichain.Types(topology)}
		for _, kind := range []string{chainapi.ConditionAccepted, chainapi.ConditionClassesReady} {
			if condition := meta.FindStatusCondition(topology.Status.Conditions, kind); condition != nil {
				state.Conditions = append(state.Conditions, *condition)
			}
		}
		for i := range topology.Spec.Steps {
			if driver := topology.Spec.Steps[i].Driver; driver != "" {
				state.Drivers = append(state.Drivers, driver)
			}
		}
		states = append(states, state)
	}
	return states
}
