package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// remoteCommand describes how to run a command on another node.
type remoteCommand struct {
	// forward lists the flags that are passed on to the node. All other flags only apply to the local machine and are
	// rejected. The flags in local are an exception: if one of them is set, the command runs locally, unless all nodes
	// are queried.
	forward, local []string
	// object returns the command's arguments for an object. If object is nil, objects are only used to find the node.
	// If each is true, the command accepts only one argument at a time and is run once per argument.
	object func(*remote.Place) []string
	each   bool
	// claims reports whether the command's arguments are claims.
	claims bool
	// single and all replace the command for a single node and for all nodes, respectively. If single is nil, the
	// output of the command on the node is relayed. If all is nil, the command has no --all-nodes flag. all only
	// receives arguments if allArguments is true.
	single       func(ctx context.Context, cluster *remote.Cluster, node string) error
	all          func(ctx context.Context, cluster *remote.Cluster, arguments []string) error
	allArguments bool

	deps    osdeps.Deps
	streams printer.Streams
	access  remote.Access
	node    string
	every   bool
}

// rootVariable is the environment variable for the directory where the node's files are mounted. It is set in the
// driver's container.
const rootVariable = "NETDRA_ROOT"

// remoteHelp is appended to the help text of each command that can query other nodes.
const remoteHelp = `

To query another node, name it with --node, or name an object on it: pod/NAME, claim/NAME or node/NAME. netdra then runs
in the driver's pod on that node, with your permissions in the cluster ("netdra help remote").`

// addRemote adds the remote flags to a command. If a flag or an argument selects another node, the command queries that
// node.
//
// It wraps the RunE and Args that are already set in the command, so it must be called last. Flags that the command
// already defines, such as --node in policies, keep their meaning and are looked up by name.
func addRemote(cmd *cobra.Command, deps osdeps.Deps, streams printer.Streams, r *remoteCommand) {
	r.deps, r.streams = deps, streams
	set := cmd.Flags()
	if set.Lookup("node") == nil {
		set.StringVar(&r.node, "node", "", "name of the node to query through the API server")
	}
	if set.Lookup("kubeconfig") == nil {
		set.StringVar(&r.access.Kubeconfig, "kubeconfig", "",
			"kubeconfig file for access to other nodes (default: as kubectl)")
	}
	set.StringVar(&r.access.Context, "context", "", "context of the kubeconfig file")
	set.StringVarP(&r.access.Namespace, "namespace", "n", "",
		"namespace of objects without one (default: the namespace of the context)")
	set.StringVar(&r.access.DriverNamespace, "driver-namespace", remote.DefaultDriverNamespace,
		"namespace of the driver's pods")
	if r.all != nil {
		set.BoolVar(&r.every, "all-nodes", false, "query every node that the driver is deployed on")
		cmd.MarkFlagsMutuallyExclusive("node", "all-nodes")
	}
	cmd.Long += remoteHelp
	local, args := cmd.RunE, cmd.Args
	cmd.Args = nil // an object can replace the required argument
	cmd.RunE = func(cmd *cobra.Command, arguments []string) error {
		called, err := r.run(cmd, arguments)
		if called || err != nil {
			return err
		}
		if args != nil {
			if err := args(cmd, arguments); err != nil {
				return err
			}
		}
		if r.claims && r.access.Namespace != "" {
			arguments = qualified(arguments, r.access.Namespace)
		}
		return local(cmd, arguments)
	}
}

// run executes the command on another node if the flags or arguments select one, and reports whether it did.
//
// Without --node and without an object, the command runs locally. Otherwise, netdra would access the cluster with the
// driver's permissions when it runs in the driver's pod.
func (r *remoteCommand) run(cmd *cobra.Command, arguments []string) (called bool, err error) {
	flags := cmd.Flags()
	node, _ := flags.GetString("node") // the command's own --node flag, if any, has the same meaning
	r.access.Kubeconfig, _ = flags.GetString("kubeconfig")
	objects, rest := splitObjects(arguments)
	switch {
	case slices.ContainsFunc(r.local, flags.Changed) && !r.every: // with --all-nodes, checkFlags rejects them
		if flags.Changed("kubeconfig") {
			return true, errors.New("cannot use --kubeconfig with --filename or --from, which read no cluster; name " +
				"the node's properties with --node-labels and --node-address")
		}
		return false, nil
	case node == "" && !r.every && len(objects) == 0:
		if r.access.Context != "" {
			return true, errors.New("cannot choose a node: --context only selects a cluster; name the node with " +
				"--node, or name an object on it, such as pod/NAME")
		}
		return false, nil
	}
	if err := r.checkFlags(flags); err != nil {
		return true, err
	}
	cluster, err := r.deps.Cluster(r.access)
	if err != nil {
		return true, err
	}
	if r.every {
		if len(arguments) > 0 && !r.allArguments {
			return true, errors.New("cannot use arguments with --all-nodes; omit them, or name one node")
		}
		return true, r.all(cmd.Context(), cluster, arguments)
	}
	if node != "" {
		objects = append(objects, remote.Object{Kind: "node", Name: node})
	}
	return true, r.query(cmd, cluster, objects, rest)
}

// splitObjects separates TYPE/NAME arguments from other arguments.
func splitObjects(arguments []string) (objects []remote.Object, rest []string) {
	for _, argument := range arguments {
		if object, found := remote.ParseObject(argument); found {
			objects = append(objects, object)
		} else {
			rest = append(rest, argument)
		}
	}
	return objects, rest
}

// checkFlags rejects flags that do not apply to another node. Silently dropping them would lead to wrong results.
func (r *remoteCommand) checkFlags(flags *pflag.FlagSet) error {
	var wrong []string
	flags.Visit(func(flag *pflag.Flag) {
		if !slices.Contains(r.forward, flag.Name) && !slices.Contains([]string{"node", "all-nodes", "kubeconfig",
			"context", "namespace", "driver-namespace"}, flag.Name) {
			wrong = append(wrong, "--"+flag.Name)
		}
	})
	if len(wrong) > 0 {
		elsewhere := "for another node"
		if r.every {
			elsewhere = "with --all-nodes"
		}
		return fmt.Errorf("cannot use %s %s: it applies to this machine only; omit it, or run netdra on the node",
			strings.Join(wrong, ", "), elsewhere)
	}
	return nil
}

// query runs the command on the node where the objects are located, which must be the same for all of them.
func (r *remoteCommand) query(
	cmd *cobra.Command, cluster *remote.Cluster, objects []remote.Object, rest []string,
) error {
	ctx := cmd.Context()
	var lines [][]string
	node := ""
	for _, object := range objects {
		place, err := cluster.Locate(ctx, object)
		if err != nil {
			return err
		}
		if node != "" && node != place.Node {
			return fmt.Errorf("cannot query nodes %s and %s in one call; name objects on a single node", node,
				place.Node)
		}
		node = place.Node
		if object.Kind != "node" && r.object != nil {
			if len(place.Devices) == 0 {
				return fmt.Errorf("cannot query node %s for %s %s: it has no device of this driver", node, object.Kind,
					object.Name)
			}
			if names := r.object(place); r.each {
				lines = slices.AppendSeq(lines, slices.Chunk(names, 1))
			} else {
				lines = append(lines, names)
			}
		}
	}
	if r.single != nil {
		if len(rest) > 0 {
			return fmt.Errorf("cannot use argument %q; name a node, a pod or a claim as TYPE/NAME", rest[0])
		}
		return r.single(ctx, cluster, node)
	}
	if len(rest) > 0 || len(lines) == 0 {
		if r.claims {
			rest = qualified(rest, cluster.Namespace)
		}
		lines = append(lines, rest)
	}
	command := append(commandPath(cmd), setFlags(cmd.Flags(), r.forward)...)
	for i := range lines {
		lines[i] = slices.Concat(command, []string{"--"}, lines[i])
	}
	return cluster.Relay(ctx, r.streams, node, lines...)
}

// commandPath returns the command names on the path to a command. It does not use aliases, because an older netdra on
// the node might not support them.
func commandPath(cmd *cobra.Command) []string {
	if !cmd.HasParent() {
		return nil
	}
	return append(commandPath(cmd.Parent()), cmd.Name())
}

func qualified(names []string, namespace string) []string {
	all := make([]string, 0, len(names))
	for _, name := range names {
		if !strings.Contains(name, "/") {
			name = namespace + "/" + name
		}
		all = append(all, name)
	}
	return all
}

// setFlags returns the flags that the user set, in the form --name=value. A value in a separate argument would be
// parsed as a flag if it started with a dash.
func setFlags(flags *pflag.FlagSet, forward []string) []string {
	var arguments []string
	flags.Visit(func(flag *pflag.Flag) {
		if slices.Contains(forward, flag.Name) {
			arguments = append(arguments, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return arguments
}

// saveFrom returns a function that runs a command on one node and saves the output in the file at path.
func saveFrom(
	streams printer.Streams, path *string, command string,
) func(ctx context.Context, cluster *remote.Cluster, node string) error {
	return func(ctx context.Context, cluster *remote.Cluster, node string) error {
		answer, err := cluster.Run(ctx, node, command)
		if err != nil {
			return err
		}
		if answer.Code != exit.OK {
			return fmt.Errorf("cannot create the %s of node %s: exit status %d of netdra there: %s", command, node,
				answer.Code, cmp.Or(printer.Sanitize(answer.Stderr, false), "no error message; run it on the node"))
		}
		return printer.Save(streams, *path, answer.Stdout)
	}
}

func remoteTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "remote",
		Short: "Query other nodes, and required permissions",
		Long: `bundle, claims, devices, doctor, explain, policies list, report and trace query the driver of another
node if --node names it, or if an argument names an object on it: node/NAME, pod/NAME or claim/NAME, with -n
NAMESPACE. An object also selects the output: the claims of a pod, or the devices of a claim. With --all-nodes,
devices, doctor, policies list and report query every node.

netdra finds the driver's pod on the node and runs the netdra of its image there, like "kubectl exec". It only uses
your kubeconfig, so you need these permissions:

  get pods, resourceclaims              to find the node of a pod or a claim
  list pods in the driver's namespace   to find the driver's pod
  get and create pods/exec there        to run netdra in it

The chart provides them as the ClusterRole and, in the driver's namespace, the Role dra-network-netdra, both without a
binding. Users who can execute commands in the driver's pods are root on every node: bind the Role to administrators
only.

On a node, as root, commands without --node and without an object query the driver of that node and need no cluster.`,
	}
}
