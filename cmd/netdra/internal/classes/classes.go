// Package classes lists the classes that application developers can request.
//
// The rule of this package: it reads only DeviceClasses and NetworkTopologies, with the caller's privileges.
package classes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/simulate"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Class describes one of a topology's DeviceClasses to a developer.
type Class struct {
	Name        string `json:"name"`
	Topology    string `json:"topology"`
	Description string `json:"description,omitempty"`
	Plugin      string `json:"plugin"`
	// With are the other classes of the topology, which a claim must also request.
	With []string `json:"with,omitempty"`
	// Parameters are the parameters that a claim may set in any step, see NetworkTopologySpec.AllowedParameters.
	Parameters []string `json:"parameters,omitempty"`
	// Addresses are the ranges for the ips of claims; empty if the topology does not define them.
	Addresses []string `json:"addresses,omitempty"`
	// Accepted is false if the controller has not accepted the topology, so that its claims are not attached.
	Accepted bool `json:"accepted"`
	// Free is the number of additional claims for the topology that fit, by node name; nil if this was not requested.
	Free map[string]int `json:"free,omitempty"`
	// FreeProblem is the reason why Free cannot be counted.
	FreeProblem string `json:"freeProblem,omitempty"`
}

// Of returns the existing classes of topologies, sorted by name. It reads the classes from the topology's status,
// because the classes for its spec may not exist yet.
func Of(topologies []v1alpha1.NetworkTopology) []Class {
	classes := []Class{}
	for i := range topologies {
		topology := &topologies[i]
		accepted := slices.ContainsFunc(topology.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == "Accepted" && c.Status == metav1.ConditionTrue
		})
		parameters, addresses := topology.Spec.AllowedParameters(), claimspec.AskableAddresses(topology)
		for j := range topology.Spec.Steps {
			step := &topology.Spec.Steps[j]
			name := v1alpha1.ClassName(topology.Name, step.Name)
			if !slices.Contains(topology.Status.DeviceClasses, name) {
				continue
			}
			classes = append(classes, Class{Name: name, Topology: topology.Name, Plugin: step.Type, Accepted: accepted,
				Description: topology.Spec.Description, Parameters: slices.Clone(parameters),
				Addresses: slices.Clone(addresses),
				With: slices.DeleteFunc(slices.Clone(topology.Status.DeviceClasses),
					func(other string) bool { return other == name })})
		}
	}
	slices.SortFunc(classes, func(a, b Class) int { return cmp.Compare(a.Name, b.Name) })
	return classes
}

// List prints the classes in a cluster. If free is true, it also prints how many claims fit on which nodes.
func List(ctx context.Context, cluster *remote.Cluster, streams printer.Streams, form string, free bool) error {
	topologies, err := cluster.Topologies(ctx)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot list the NetworkTopologies: %w; ask for the ClusterRole dra-network-view by a "+
			"ClusterRoleBinding: NetworkTopologies have no namespace, so a RoleBinding of edit or view grants nothing "+
			"here", err)
	}
	if err != nil {
		return fmt.Errorf("cannot list the NetworkTopologies: %w", err)
	}
	classes := Of(topologies)
	columns := columns()
	if free {
		unread, err := addFree(ctx, cluster, classes)
		if err != nil {
			return err
		}
		if unread != nil {
			printer.New(streams.Err).Warn("%v", unread)
		}
		columns = slices.Insert(columns, 1, printer.Column[Class]{Title: "FREE", Value: freeText})
	}
	err = printer.List(streams.Out, form, classes, columns, "the cluster has no class of a NetworkTopology")
	if err == nil && (form == printer.FormTable || form == printer.FormWide) {
		warnOfUncounted(printer.New(streams.Out), classes)
	}
	return err
}

func columns() []printer.Column[Class] {
	return []printer.Column[Class]{
		{Title: "CLASS", Value: func(c *Class) string { return c.Name }},
		{Title: "ALSO REQUEST", Value: func(c *Class) string { return strings.Join(c.With, ", ") }},
		{Title: "PARAMETERS", Value: func(c *Class) string { return strings.Join(c.Parameters, ", ") }},
		{Title: "ADDRESSES", Value: func(c *Class) string { return strings.Join(c.Addresses, ", ") }},
		{Title: "STATE", Value: func(c *Class) string {
			if c.Accepted {
				return "accepted"
			}
			return "not accepted"
		}},
		{Title: "DESCRIPTION", Value: func(c *Class) string { return c.Description }},
		{Title: "TOPOLOGY", Wide: true, Value: func(c *Class) string { return c.Topology }},
		{Title: "CNI PLUGIN", Wide: true, Value: func(c *Class) string { return c.Plugin }},
	}
}

const (
	// mostFree is the maximum number of claims that are counted on a node, because each requires a run of the
	// allocator.
	mostFree = 32
	// mostNodes is the maximum number of nodes in a table cell.
	mostNodes = 4
)

// addFree counts how many additional claims for each topology fit on each node that publishes network devices. It omits
// devices from other drivers, because no topology class selects them. unread is the error if taint rules could not be
// read.
func addFree(ctx context.Context, cluster *remote.Cluster, classes []Class) (unread, err error) {
	model := simulate.Cluster{Live: true}
	if err := model.Read(ctx, cluster); err != nil {
		return nil, fmt.Errorf("cannot count free devices: %w; or leave out --free", err)
	}
	model.Slices = slices.DeleteFunc(model.Slices,
		func(slice *resourceapi.ResourceSlice) bool { return slice.Spec.Driver != v1alpha1.DriverName })
	model.Nodes = simulate.NodesOf(model.Slices)
	model.TaintRules, unread = simulate.TaintRules(ctx, cluster.Raw)
	return unread, count(ctx, simulate.New(model), classes)
}

// count counts for each topology. An error for a topology, such as a selector that cannot be evaluated for a device on
// some node, is recorded in its classes, and counting continues. A topology is counted once for all of its classes,
// because a claim must request all of them.
func count(ctx context.Context, simulator *simulate.Simulator, classes []Class) error {
	type result struct {
		free    map[string]int
		problem string
	}
	counted := map[string]result{}
	for i := range classes {
		class := &classes[i]
		// The claim for the first class requests all of the topology's classes, so its result also applies to the
		// others.
		found, known := counted[class.Topology]
		if !known {
			free, err := simulator.Free(ctx, append([]string{class.Name}, class.With...), mostFree)
			if stopped := ctx.Err(); stopped != nil {
				return fmt.Errorf("cannot count free devices: %w", stopped)
			}
			found.free = free
			if err != nil {
				found.problem = err.Error()
			}
			counted[class.Topology] = found
		}
		class.Free, class.FreeProblem = found.free, found.problem
	}
	return nil
}

// freeText returns the text for a table cell, with the nodes that have the most room first.
func freeText(class *Class) string {
	if class.FreeProblem != "" {
		return "unknown"
	}
	nodes := slices.SortedFunc(maps.Keys(class.Free), func(a, b string) int {
		if class.Free[a] != class.Free[b] {
			return class.Free[b] - class.Free[a]
		}
		return strings.Compare(a, b)
	})
	var texts []string
	for i, node := range nodes {
		if i == mostNodes {
			texts = append(texts, fmt.Sprintf("%d more nodes", len(nodes)-i))
			break
		}
		count := fmt.Sprint(class.Free[node])
		if class.Free[node] == mostFree {
			count += " or more"
		}
		texts = append(texts, node+": "+count)
	}
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, ", ")
}

// warnOfUncounted prints the reasons why the claims for some topologies could not be counted.
func warnOfUncounted(out *printer.Printer, classes []Class) {
	told := map[string]bool{}
	for i := range classes {
		if c := &classes[i]; c.FreeProblem != "" && !told[c.Topology] {
			told[c.Topology] = true
			out.Warn("cannot count free devices of NetworkTopology %s: %s", c.Topology, c.FreeProblem)
		}
	}
}
