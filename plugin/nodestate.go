package plugin

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

func (d *Driver) state() nodestate.State {
	c := &d.config
	state := nodestate.State{
		Node: c.NodeName, Version: c.Version, Synced: d.Cluster.hasSynced(), NotReady: append([]string{},
			d.missing()...), Problems: d.Publisher.Problems(), UnusableCNIs: d.Publisher.UnusableCNIs(),
		SetAside: d.journal.SetAside, NRITimeout: d.nri.runtime.now().timeout, Topologies: d.Cluster.topologyStates(),
		HostPaths: map[string][]string{}, LinkTypes: map[string][]string{}, PodAnnotations: map[string]string{},
		Refused: d.refusedClaims(), MissingFacts: d.nri.runtime.now().missingFacts,
		AttributeFiles: d.attributes.Files(),
		Settings: nodestate.Settings{
			PluginDir: c.PluginDir, RegistrarDir: c.RegistrarDir, CNIDirs: c.CNIDirs, NetNSDir: c.NetNSDir,
			CDIDir: c.CDIDir, LogDir: c.LogDir, NRISocket: c.NRISocket,
			DeviceInfoDir: c.DeviceInfoDir,
		},
	}
	for cniType, schema := range d.Cluster.PluginSchemas().All() {
		if len(schema.HostPaths) > 0 {
			state.HostPaths[cniType] = schema.HostPaths
		}
		if len(schema.LinkTypes) > 0 {
			state.LinkTypes[cniType] = schema.LinkTypes
		}
		if schema.PodNetworks != nil {
			state.PodAnnotations[cniType] = schema.PodNetworks.Annotation
		}
	}
	state.MissingInterpreters = missingInterpreters(state.Topologies, c.CNIDirs)
	if plugins, err := publish.Binaries(c.CNIDirs); err == nil { // the publisher reports errors
		state.CNIPlugins = sets.List(plugins)
	}
	if node, err := d.Cluster.ThisNode(); err == nil {
		info := &node.Status.NodeInfo
		state.NodeFound = true
		state.Addresses = publish.NodeAddresses(node)
		state.Versions = nodestate.Versions{Kubelet: info.KubeletVersion, Runtime: info.ContainerRuntimeVersion,
			Kernel: info.KernelVersion}
	}
	return state
}

// missingInterpreters returns the missing program interpreters of the topologies' plugins, by CNI type.
func missingInterpreters(topologies []nodestate.Topology, dirs []string) map[string]string {
	missing := map[string]string{}
	for i := range topologies {
		for _, cniType := range topologies[i].Plugins {
			path, err := executor.PluginExec{}.FindInPath(cniType, dirs)
			if err != nil {
				continue
			}
			if interpreter := executor.MissingInterpreter(path); interpreter != "" {
				missing[cniType] = interpreter
			}
		}
	}
	return missing
}

// refusedClaims returns the claims that pods on the node are waiting for and whose last Prepare call was rejected,
// sorted. Pods refer to claims only by name, and to correct a claim, a user must recreate it under the same name.
// Therefore a rejected claim is omitted once a later claim with the same name is prepared or rejected.
func (d *Driver) refusedClaims() []nodestate.RefusedClaim {
	latest := map[string]nodestate.RefusedClaim{}
	for _, refused := range d.Statuses.Refused() {
		if name := refused.Claim.String(); latest[name].At.Before(refused.At) {
			latest[name] = refused
		}
	}
	for _, record := range d.Claims.All() {
		delete(latest, record.Claim.String())
	}
	var waiting []nodestate.RefusedClaim
	for _, name := range slices.Sorted(maps.Keys(latest)) {
		refused := latest[name]
		for _, pod := range d.Cluster.podsWithClaim(refused.Claim.Namespace, refused.Claim.Name) {
			refused.Pods = append(refused.Pods, pod.Namespace+"/"+pod.Name)
		}
		if len(refused.Pods) > 0 {
			waiting = append(waiting, refused)
		}
	}
	return waiting
}

func (c *cluster) topologyStates() []nodestate.Topology {
	states := []nodestate.Topology{}
	for _, topology := range items[*chainapi.NetworkTopology](c.topologies) {
		state := nodestate.Topology{Name: topology.Name, Conditions: []metav1.Condition{},
			Plugins: cnichain.Types(topology)}
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

func (d *Driver) claimStates() []nodestate.Claim {
	records := d.Claims.All()
	states := make([]nodestate.Claim, 0, len(records))
	for i := range records {
		states = append(states, nodestate.Claim{ClaimRecord: records[i], Unused: d.isOrphaned(&records[i])})
	}
	return states
}

// isOrphaned reports whether a prepared claim is unused: none of its consumers exists, no sandbox uses it, and no pod
// on the node names it. It checks all three sources, since each of them may be outdated. It returns false until the pod
// cache has synced.
func (d *Driver) isOrphaned(record *claims.Record) bool {
	for _, consumer := range record.Consumers {
		if !d.Cluster.podUIDIsGone(consumer.PodUID) {
			return false
		}
	}
	return d.Cluster.pods.HasSynced() && len(d.Sandboxes.Users(record.Claim.UID)) == 0 &&
		len(d.Cluster.podsWithClaim(record.Claim.Namespace, record.Claim.Name)) == 0
}
