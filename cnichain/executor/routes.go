package executor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// routeCheck tracks the pod's preferred default routes while an attachment's steps run. For each IP family, it stores
// the indexes of the links that the routes use (ADR 45).
type routeCheck struct {
	// original holds the routes before the first attempt, and accepted those after the last completed instance of a
	// topology.
	original, accepted map[string][]int
	// changer is the first step in the current instance that changed a route. allowed is true if one of the instance's
	// steps is permitted to do so.
	changer *StepRecord
	allowed bool
}

// newRouteCheck starts with a pod's current default routes, unless an earlier attempt for the same sandbox has recorded
// them: during that attempt, a plugin may have removed a route that its DEL did not restore.
func newRouteCheck(attachment *Attachment, now map[string][]int) *routeCheck {
	if attachment.DefaultRoutes == nil {
		attachment.DefaultRoutes = now
	}
	return &routeCheck{original: attachment.DefaultRoutes, accepted: attachment.DefaultRoutes}
}

// follow records the routes after step i. After the last step of an instance, it returns an error if the instance
// replaced a default route that the pod had before, unless its topology allows this. Otherwise, the pod's traffic to
// the cluster would leave through the wrong interface. Steps in the middle of an instance may move a route, as sbr
// does.
func (c *routeCheck) follow(attachment *Attachment, i int, contents *host.Contents) error {
	record, now := &attachment.Steps[i], contents.DefaultRoutes
	c.allowed = c.allowed || !record.Step.KeepsDefaultRoute
	replaced := c.replaced(now)
	if replaced != "" && c.changer == nil {
		c.changer = record
	}
	if i+1 < len(attachment.Steps) && isSameInstance(record, &attachment.Steps[i+1]) {
		return nil
	}
	if replaced != "" && !c.allowed {
		return stepError(c.changer, commandAdd, fmt.Errorf("%s replaced the pod's %s default route through %s by one "+
			"through %s, so the pod would lose its connection to the cluster; remove the default route from the "+
			"configuration of the step and its ipam (routes, gateway, isDefaultGateway), or set defaultRoute: true if "+
			"the step's network is meant to carry the pod's other traffic, and delete the pod and its claim",
			c.changer.Step.Type, replaced, linkNames(contents.Links, c.accepted[replaced]),
			linkNames(contents.Links, now[replaced])))
	}
	*c = routeCheck{original: c.original, accepted: now}
	return nil
}

// replaced returns the first IP family for which the pod had a default route but now prefers a different one, or "" if
// there is none.
func (c *routeCheck) replaced(now map[string][]int) (family string) {
	for _, family := range slices.Sorted(maps.Keys(c.original)) {
		if !slices.Equal(now[family], c.accepted[family]) && !slices.Equal(now[family], c.original[family]) {
			return family
		}
	}
	return ""
}

// isSameInstance reports whether two steps belong to the same instance of a topology.
func isSameInstance(a, b *StepRecord) bool {
	return a.Claim == b.Claim && a.Topology == b.Topology && a.Step.Instance == b.Step.Instance
}

// linkNames returns the names of the links with the given indexes, separated by commas.
func linkNames(links []cnichain.Link, indexes []int) string {
	var names []string
	for _, index := range indexes {
		i := slices.IndexFunc(links, func(l cnichain.Link) bool { return l.Index == index })
		if i >= 0 {
			names = append(names, links[i].Name)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "no interface")
}
