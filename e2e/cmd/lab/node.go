package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

func nodeCommand(w *where) *cobra.Command {
	parent := &cobra.Command{
		Use:   "node",
		Short: "Switch nodes of a cluster with several off and on",
		Long: `node is for clusters with several nodes (lab up --nodes 3). NODE is a name or a number, from 1.

Each node has links eth1, eth2 and so on to a wire that all nodes share: a bridge, which passes VLAN tags on. macvlan
interfaces of pods on different nodes meet there. Another link, "uplink", leads to the API server, the pods' first
interfaces and the other nodes.`,
		Example: `  lab up --nodes 3
  lab node list
  lab node reboot 2
  lab node disconnect 3 --from api
  lab exec --node 3 -- ip -br link`,
	}
	parent.AddCommand(nodeListCommand(w),
		powerCommand(w, "off", "End everything on a node, as if its power failed",
			`off kills all processes of the node at once. Its network namespaces, mounts, links and /run are gone; what it
wrote to /etc, /opt and /var stays. Kubernetes is not told.`, (*lab.Node).PowerOff),
		powerCommand(w, "on", "Start a node that is off", bootText("on"), (*lab.Node).PowerOn),
		powerCommand(w, "reboot", "Switch a node off and on", bootText("reboot"), (*lab.Node).Reboot),
		cableCommand(w, "disconnect", "--from", "Take the carrier of a node's links away", (*lab.Node).Disconnect),
		cableCommand(w, "connect", "--to", "Give a node's links their carrier back", (*lab.Node).Connect))
	return parent
}

func bootText(verb string) string {
	return verb +
		` returns when the node is Ready. It has another boot ID than before, and its links have other indexes,
in another order. All its cables are plugged in.`
}

func powerCommand(
	w *where, verb, short, long string, do func(*lab.Node, context.Context) error,
) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NODE", Short: short, Long: long, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := w.node(args[0])
			if err != nil {
				return err
			}
			start := time.Now()
			if err := do(n, cmd.Context()); err != nil {
				return err
			}
			state := map[bool]string{true: "on", false: "off"}[n.On()]
			return printf(cmd, "%s is %s after %s.", n.NodeName(), state, since(start))
		},
	}
}

func cableCommand(
	w *where, verb, flag, short string, do func(*lab.Node, lab.Segment) error,
) *cobra.Command {
	name := strings.TrimPrefix(flag, "--")
	cmd := &cobra.Command{
		Use: verb + " NODE", Short: short, Args: cobra.ExactArgs(1),
		Example: fmt.Sprintf("  lab node %s 2 %s api\n  lab node %s 2 %s wire", verb, flag, verb, flag),
	}
	segment := cmd.Flags().String(name, "", `"api" for the link to the API server and other nodes' pods, "wire" for `+
		"those to the wire")
	// connect also accepts --from, so that calling it with the same arguments as disconnect reverts the effect.
	if name != "from" {
		cmd.Flags().StringVar(segment, "from", "", "the same as --"+name)
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		n, err := w.node(args[0])
		if err != nil {
			return err
		}
		for _, known := range lab.Segments() {
			if string(known) == *segment {
				return do(n, known)
			}
		}
		return fmt.Errorf("%s must be one of %v, not %q", flag, lab.Segments(), *segment)
	}
	return cmd
}

func nodeListCommand(w *where) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the nodes, and which cables are plugged in",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := w.open()
			if err != nil {
				return err
			}
			return printNodes(cmd, c)
		},
	}
}

func printNodes(cmd *cobra.Command, c *lab.Cluster) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(table, "NODE\tPOWER\tADDRESS\tAPI\tWIRE")
	for _, n := range c.Nodes() {
		power, cables := "off", []string{"-", "-"}
		if n.On() {
			power = "on"
			for i, segment := range lab.Segments() {
				connected, cerr := n.Connected(segment)
				err = errors.Join(err, cerr)
				cables[i] = map[bool]string{true: "connected", false: "disconnected"}[connected]
			}
		}
		_, perr := fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", n.NodeName(), power, n.Address(), strings.Join(cables, "\t"))
		err = errors.Join(err, perr)
	}
	return errors.Join(err, table.Flush())
}

// node returns the node with the given name or number.
func (w *where) node(name string) (*lab.Node, error) {
	c, err := w.open()
	if err != nil {
		return nil, err
	}
	return c.Node(name)
}

// machine returns the machine of the named node, or the cluster's machine if node is empty.
func (w *where) machine(node string) (*lab.Machine, error) {
	c, err := w.open()
	if err != nil {
		return nil, err
	}
	if node == "" {
		return &c.Machine, nil
	}
	n, err := c.Node(node)
	if err != nil {
		return nil, err
	}
	return &n.Machine, nil
}

// nodeFlag adds the --node flag for commands that act on a node in a multi-node cluster.
func nodeFlag(cmd *cobra.Command, node *string) {
	cmd.Flags().StringVar(node, "node", "", "one of several nodes, by name or number (default: the machine of the "+
		"control plane)")
}
