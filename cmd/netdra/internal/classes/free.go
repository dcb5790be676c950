package classes

import (
	"context"
	"errors"
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
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const (
	// mostFree is the maximum number of claims that are counted on a node, because each requires a run of the
	// allocator.
	mostFree = 32
	// mostNodes is the maximum number of nodes in a table cell.
	mostNodes = 4
)

// addFree counts how many additional claims for each topology fit on each node. unread is the error if taint rules
// could not be read.
func addFree(ctx context.Context, cluster *remote.Cluster, classes []Class) (unread, err error) {
	model, err := read(ctx, cluster)
	if err != nil {
		return nil, err
	}
	model.TaintRules, unread = simulate.TaintRules(ctx, cluster.Raw)
	return unread, count(ctx, simulate.New(*model), classes)
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

// read returns the input for the allocator: the nodes that publish network devices, and all allocations. It omits
// devices from other drivers, because no topology class selects them. Claims in all namespaces are included, because
// they hold devices.
func read(ctx context.Context, cluster *remote.Cluster) (*simulate.Cluster, error) {
	published, err := cluster.Resource.ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + v1alpha1.DriverName})
	made, classErr := cluster.Resource.DeviceClasses().List(ctx, metav1.ListOptions{})
	claims, claimErr := cluster.Resource.ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	switch err := errors.Join(err, classErr, claimErr); {
	case apierrors.IsForbidden(claimErr):
		return nil, fmt.Errorf("cannot count free devices: %w; ask for the ClusterRole dra-network-capacity, for the "+
			"whole cluster, or leave out --free", err)
	case err != nil:
		return nil, fmt.Errorf("cannot count free devices: %w", err)
	}
	model := &simulate.Cluster{Live: true}
	for i := range published.Items {
		model.Slices = append(model.Slices, &published.Items[i])
	}
	for i := range made.Items {
		model.Classes = append(model.Classes, &made.Items[i])
	}
	for i := range claims.Items {
		if claims.Items[i].Status.Allocation != nil {
			model.Claims = append(model.Claims, &claims.Items[i])
		}
	}
	model.Nodes = simulate.NodesOf(model.Slices)
	return model, nil
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
