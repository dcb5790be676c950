// Package classes lists the classes that application developers can request.
//
// The rule of this package: it reads only DeviceClasses and NetworkTopologies, with the caller's privileges.
package classes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
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
	// Addresses are the ranges from which a claim may request ips; empty if the topology does not define them.
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

// List prints the classes in a cluster. If free is true, it also prints how many claims fit on which nodes. It reads
// the list as JSON by its path, so that no client for the driver's API group is linked.
func List(ctx context.Context, cluster *remote.Cluster, streams printer.Streams, form string, free bool) error {
	data, err := cluster.Raw(ctx, "/apis/"+v1alpha1.GroupVersion().String()+"/networktopologies")
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot list the NetworkTopologies: %w; ask for the ClusterRole dra-network-view by a "+
			"ClusterRoleBinding: NetworkTopologies have no namespace, so a RoleBinding of edit or view grants nothing "+
			"here", err)
	}
	if err != nil {
		return fmt.Errorf("cannot list the NetworkTopologies: %w", err)
	}
	var list v1alpha1.NetworkTopologyList
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("cannot read the list of NetworkTopologies: %w", err)
	}
	classes := Of(list.Items)
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
