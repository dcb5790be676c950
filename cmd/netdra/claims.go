package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/inventory"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

func claimsCommand(to console) *cobra.Command {
	var socket, form string
	cmd := &cobra.Command{
		Use:   "claims [[NAMESPACE/]CLAIM]...",
		Short: "List the claims that are prepared on this node, with their pods, interfaces and addresses",
		Long: `claims lists what the driver of this node has prepared, with a line for each pod that has the claim. A claim without a namespace
is looked up in "default".

The column STATE says: prepared (its pod's sandbox is not there yet), attaching, attached, lost (it was attached, and an interface
is not in the pod any more), failed (it is tried again), detaching, or forsaken (no pod of this node uses it, and kubelet has not
released it yet). Why claims are lost or have failed is below the table. Times are in UTC.

Exit status: 0 they are listed, 1 one of them has failed or is lost, 2 the driver does not answer, or has no such claim.`,
		Example: `  sudo netdra claims
  sudo netdra claims default/my-pod-net-8x2kq -o wide
  sudo netdra claims -o json | jq '.[].pods[]?.interfaces'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := checkListForm(form); err != nil {
				return err
			}
			all, err := askAll(cmd.Context(), socket)
			if err != nil {
				return err
			}
			claims, err := chooseClaims(inventory.Claims(all), names)
			if err != nil {
				return err
			}
			return printClaims(to, form, claims)
		},
		ValidArgsFunction: completeFrom(&socket, claimNames),
	}
	socketFlag(cmd, &socket)
	listFlag(cmd, &form)
	return cmd
}

// chooseClaims are those with the names; all without any.
func chooseClaims(claims []inventory.Claim, names []string) ([]inventory.Claim, error) {
	if len(names) == 0 {
		return claims, nil
	}
	chosen := []inventory.Claim{}
	for _, name := range names {
		namespace, short := splitClaim(name)
		found := slices.DeleteFunc(slices.Clone(claims), func(c inventory.Claim) bool { return c.Namespace != namespace || c.Name != short })
		if len(found) == 0 {
			return nil, fmt.Errorf("claim %s/%s is not prepared on this node: \"netdra claims\" lists those that are", namespace, short)
		}
		chosen = append(chosen, found...)
	}
	return chosen, nil
}

// splitClaim reads [NAMESPACE/]CLAIM.
func splitClaim(name string) (namespace, short string) {
	namespace, short, qualified := strings.Cut(name, "/")
	if !qualified {
		return "default", name
	}
	return namespace, short
}

// claimRow is a claim in one of its pods.
type claimRow struct {
	claim *inventory.Claim
	pod   inventory.Pod
}

func printClaims(to console, form string, claims []inventory.Claim) error {
	var err error
	if form == formJSON || form == formYAML {
		err = printResult(to.out, form, claims)
	} else {
		err = tabulateClaims(to, form, claims)
	}
	failed := slices.ContainsFunc(claims, func(c inventory.Claim) bool { return c.State == inventory.Failed || c.State == inventory.Lost })
	if err == nil && failed {
		err = &exitError{code: exitFailed, err: errShown}
	}
	return err
}

func tabulateClaims(to console, form string, claims []inventory.Claim) error {
	rows := []claimRow{}
	for i := range claims {
		claim := &claims[i]
		for _, pod := range claim.Pods {
			rows = append(rows, claimRow{claim, pod})
		}
		if len(claim.Pods) == 0 {
			rows = append(rows, claimRow{claim, inventory.Pod{State: claim.State, Since: claim.PreparedAt}})
		}
	}
	err := printList(to.out, form, rows, []column[claimRow]{
		{title: "CLAIM", value: func(r *claimRow) string { return r.claim.Namespace + "/" + r.claim.Name }},
		{title: "POD", value: func(r *claimRow) string { return r.pod.Name }},
		{title: "STATE", value: func(r *claimRow) string { return r.pod.State }},
		{title: "INTERFACES", value: func(r *claimRow) string { return strings.Join(interfaceTexts(r.pod.Interfaces), ", ") }},
		{title: "SINCE", value: func(r *claimRow) string { return timeText(r.pod.Since) }},
		{title: "TOPOLOGY", wide: true, value: func(r *claimRow) string { return strings.Join(r.claim.Topologies, ", ") }},
		{title: "DEVICES", wide: true, value: func(r *claimRow) string { return strings.Join(r.claim.Devices, ", ") }},
		{title: "PREPARED", wide: true, value: func(r *claimRow) string { return timeText(r.claim.PreparedAt) }},
		{title: "UID", wide: true, value: func(r *claimRow) string { return r.claim.UID }},
		{title: "SANDBOX", wide: true, value: func(r *claimRow) string { return fmt.Sprintf("%.12s", r.pod.Sandbox) }},
	}, "no claim is prepared on this node")
	for i := range rows {
		if rows[i].pod.Error != "" {
			newPrinter(to.out).bad("%s/%s in pod %s: %s", rows[i].claim.Namespace, rows[i].claim.Name, rows[i].pod.Name, rows[i].pod.Error)
		}
	}
	return err
}

// interfaceTexts are interfaces with their addresses, or the files by which an application uses a device.
func interfaceTexts(links []nodestate.Interface) []string {
	var texts []string
	for i := range links {
		link := &links[i]
		parts := append([]string{}, link.IPs...)
		if link.Interface != "" {
			parts = append([]string{link.Interface}, parts...)
		}
		parts = append(parts, link.DeviceNodes...)
		if len(parts) > 0 {
			texts = append(texts, strings.Join(parts, " "))
		}
	}
	return texts
}

// completionLimit is how long a shell waits for names.
const completionLimit = time.Second
