package nodeclient

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// States of a claim in a pod.
const (
	// Prepared claims are waiting for their pod or its sandbox.
	Prepared  = "prepared"
	Attaching = "attaching"
	// Failed claims could not be attached; the driver or the kubelet will retry.
	Failed   = "failed"
	Attached = "attached"
	// Lost claims were attached, but one of their interfaces has disappeared from the pod.
	Lost      = "lost"
	Detaching = "detaching"
	// Reserved claims hold devices that the pod network attaches.
	Reserved = "reserved"
	// Unused claims no longer have a pod on the node.
	Unused = "unused"
)

// Claim is a prepared claim.
type Claim struct {
	Namespace  string   `json:"namespace"`
	Name       string   `json:"name"`
	UID        string   `json:"uid"`
	Topologies []string `json:"topologies"`
	Devices    []string `json:"devices"`
	// PreparedAt is zero if the time is unknown.
	PreparedAt time.Time `json:"preparedAt,omitzero"`
	// State is the worst state among all Pods. Without pods, it is the state of the claim itself.
	State string `json:"state"`
	Pods  []Pod  `json:"pods,omitempty"`
}

// Pod is a pod sandbox that uses the claim.
type Pod struct {
	Name       string                `json:"name"` // namespace/name
	Sandbox    string                `json:"sandbox"`
	State      string                `json:"state"`
	Since      time.Time             `json:"since"`
	Interfaces []nodestate.Interface `json:"interfaces,omitempty"`
	Error      string                `json:"error,omitempty"`
}

// Claims returns the prepared claims, sorted by namespace and name, followed by the claims that the driver refused to
// prepare. The result is never nil, so that it is encoded as a JSON list.
func Claims(answers *nodestate.Answers) []Claim {
	claims := make([]Claim, 0, len(answers.Claims))
	for i := range answers.Claims {
		claims = append(claims, claim(&answers.Claims[i], answers.Sandboxes))
	}
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return append(claims, refusedClaims(answers.State.Refused)...)
}

// claim converts a claim. Its state is the worst state among its pods, because a shared claim may be attached to one
// pod and fail for another.
func claim(record *nodestate.Claim, sandboxes []nodestate.Sandbox) Claim {
	c := Claim{
		Namespace: record.Claim.Namespace, Name: record.Claim.Name, UID: record.Claim.UID,
		PreparedAt: record.PreparedAt,
		Topologies: []string{}, Devices: []string{}, State: Prepared,
	}
	for _, plan := range record.Plans {
		c.Topologies = append(c.Topologies, plan.Topology)
	}
	for _, device := range record.Devices {
		c.Devices = append(c.Devices, device.Name)
	}
	switch {
	case record.Unused:
		c.State = Unused
	case slices.ContainsFunc(record.Plans, func(p cnichain.Plan) bool { return len(p.External) > 0 }) &&
		!record.Attaches():
		c.State = Reserved
	}
	for _, sandbox := range record.Sandboxes(sandboxes) {
		pod := podOf(&sandbox, record.Claim.UID)
		if len(c.Pods) == 0 || severity(pod.State) > severity(c.State) {
			c.State = pod.State
		}
		c.Pods = append(c.Pods, pod)
	}
	return c
}

// podOf returns the pod in a sandbox with the state of a claim. If the sandbox is ready, the recorded failure is
// outdated.
func podOf(sandbox *nodestate.Sandbox, claimUID string) Pod {
	pod := Pod{Name: sandbox.Pod.String(), Sandbox: sandbox.ID, Since: sandbox.Since, Error: sandbox.Failures()}
	switch {
	case sandbox.State == "ready":
		pod.State, pod.Error = Attached, ""
	case sandbox.State == "detaching":
		pod.State = Detaching
	case sandbox.Failure != "":
		pod.State = Failed
	default:
		pod.State = Attaching
	}
	for _, link := range sandbox.Interfaces {
		if link.ClaimUID == claimUID {
			pod.Interfaces = append(pod.Interfaces, link)
			if link.Missing != "" && pod.State == Attached {
				pod.State, pod.Error = Lost, sandbox.MissingText(link.Missing)
			}
		}
	}
	return pod
}

// severity returns the rank of a state, from best to worst; -1 for states that a claim cannot have in a pod.
func severity(state string) int {
	return slices.Index([]string{Attached, Detaching, Attaching, Lost, Failed}, state)
}

// choose returns the items with the given names, or all items if no names are given. A name may match several items: a
// claim that was deleted and created again has two UIDs, and each way of using a link is a separate device. unknown is
// the format of the error for a name that does not match any item.
func choose[T any](items []T, names []string, matches func(item *T, name string) bool, unknown string) ([]T, error) {
	if len(names) == 0 {
		return items, nil
	}
	chosen := []T{}
	for _, name := range names {
		before := len(chosen)
		for i := range items {
			if matches(&items[i], name) {
				chosen = append(chosen, items[i])
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf(unknown, name)
		}
	}
	return chosen, nil
}

// refusedClaims returns the claims that the driver refused to prepare. All of their pods have the state Failed.
func refusedClaims(refused []nodestate.RefusedClaim) []Claim {
	var claims []Claim
	for i := range refused {
		r := &refused[i]
		claim := Claim{Namespace: r.Claim.Namespace, Name: r.Claim.Name, UID: r.Claim.UID, Topologies: []string{},
			Devices: []string{}, State: Failed}
		for _, pod := range r.Pods {
			claim.Pods = append(claim.Pods, Pod{Name: pod, State: Failed, Since: r.At, Error: r.Message})
		}
		claims = append(claims, claim)
	}
	return claims
}

// splitClaim parses [NAMESPACE/]CLAIM. The default namespace is "default".
func splitClaim(name string) (namespace, short string) {
	namespace, short, qualified := strings.Cut(name, "/")
	if !qualified {
		return "default", name
	}
	return namespace, short
}

// claimRow is a row in the table, for a claim in one of its pods.
type claimRow struct {
	claim *Claim
	pod   Pod
}

// ListClaims prints the claims that the driver has prepared, and the refused claims for which pods are waiting. If
// names are given, it prints only the claims with these names. If any of the printed claims has failed or lost an
// interface, it also returns an error: the list is for people, and the exit status is for scripts.
func ListClaims(ctx context.Context, streams printer.Streams, socket, form string, names []string) error {
	answers, err := Read(ctx, New(socket).Get, nodeapi.PathClaims, nodeapi.PathSandboxes, nodeapi.PathState)
	if err != nil {
		return err
	}
	claims, err := choose(Claims(answers), names, func(c *Claim, name string) bool {
		namespace, short := splitClaim(name)
		return c.Namespace == namespace && c.Name == short
	}, "claim %s is not prepared on this node; list prepared claims with \"netdra claims\"")
	if err != nil {
		return err
	}
	if form == printer.FormJSON || form == printer.FormYAML {
		err = printer.Encode(streams.Out, form, claims)
	} else {
		err = tabulateClaims(streams, form, claims)
	}
	return exit.Check(err, slices.ContainsFunc(claims,
		func(c Claim) bool { return c.State == Failed || c.State == Lost }))
}

func tabulateClaims(streams printer.Streams, form string, claims []Claim) error {
	rows := []claimRow{}
	for i := range claims {
		claim := &claims[i]
		for _, pod := range claim.Pods {
			rows = append(rows, claimRow{claim, pod})
		}
		if len(claim.Pods) == 0 {
			rows = append(rows, claimRow{claim, Pod{State: claim.State, Since: claim.PreparedAt}})
		}
	}
	err := printer.List(streams.Out, form, rows, []printer.Column[claimRow]{
		{Title: "CLAIM", Value: func(r *claimRow) string { return r.claim.Namespace + "/" + r.claim.Name }},
		{Title: "POD", Value: func(r *claimRow) string { return r.pod.Name }},
		{Title: "STATE", Value: func(r *claimRow) string { return r.pod.State }},
		{Title: "INTERFACES", Value: func(r *claimRow) string {
			return strings.Join(interfaceTexts(r.pod.Interfaces), ", ")
		}},
		{Title: "SINCE", Value: func(r *claimRow) string { return printer.Time(r.pod.Since) }},
		{Title: "TOPOLOGY", Wide: true, Value: func(r *claimRow) string { return strings.Join(r.claim.Topologies, ", ") }},
		{Title: "DEVICES", Wide: true, Value: func(r *claimRow) string { return strings.Join(r.claim.Devices, ", ") }},
		{Title: "PREPARED", Wide: true, Value: func(r *claimRow) string { return printer.Time(r.claim.PreparedAt) }},
		{Title: "UID", Wide: true, Value: func(r *claimRow) string { return r.claim.UID }},
		{Title: "SANDBOX", Wide: true, Value: func(r *claimRow) string { return fmt.Sprintf("%.12s", r.pod.Sandbox) }},
	}, "no claim is prepared on this node")
	for i := range rows {
		if rows[i].pod.Error != "" {
			printer.New(streams.Out).Bad("%s/%s in pod %s: %s", rows[i].claim.Namespace, rows[i].claim.Name,
				rows[i].pod.Name, rows[i].pod.Error)
		}
	}
	return err
}

// interfaceTexts describes each interface by its name and addresses, or by the device files that the application uses.
// For RDMA devices, it adds their names and their preferred GIDs.
func interfaceTexts(links []nodestate.Interface) []string {
	var texts []string
	for i := range links {
		link := &links[i]
		parts := append([]string{}, link.IPs...)
		if link.Interface != "" {
			parts = append([]string{link.Interface}, parts...)
		}
		parts = append(parts, link.DeviceNodes...)
		for _, device := range link.RDMA {
			parts = append(parts, device.Name)
			if len(device.GIDs) > 0 {
				parts = append(parts, fmt.Sprintf("GID %d (%s)", device.GIDs[0].Index, device.GIDs[0].Type))
			}
		}
		if link.RDMAUnknown != "" {
			parts = append(parts, "some GIDs are unknown: "+link.RDMAUnknown)
		}
		if link.Missing != "" {
			parts = append(parts, "(lost)")
		}
		if len(parts) > 0 {
			texts = append(texts, strings.Join(parts, " "))
		}
	}
	return texts
}
