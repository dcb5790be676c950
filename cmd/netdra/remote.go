package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// remoteCommand is how a command is run for a node from elsewhere.
type remoteCommand struct {
	// forward are the flags that are passed on to the node. Other flags of the command apply to the machine that netdra
	// runs on, and are rejected, except those in local, which make the command a local one unless all nodes are
	// queried.
	forward, local []string
	// object returns the arguments for an object; nil: an object only determines its node.
	object func(*remote.Place) [][]string
	// claims means that the arguments of the command are claims.
	claims bool
	// single and all take the place of the command on one node, and on all; nil: the command's output is relayed, and
	// there is no --all-nodes. all gets the arguments, and none unless allArguments is set.
	single       func(ctx context.Context, cluster *remote.Cluster, node string) error
	all          func(ctx context.Context, cluster *remote.Cluster, arguments []string) error
	allArguments bool

	deps    osdeps.Deps
	streams printer.Streams
	access  remote.Access
	node    string
	every   bool
}

// rootVariable names the variable with the directory that has the node's files; the driver's container has it.
const rootVariable = "NETDRA_ROOT"

// remoteHelp is a part of the help of each command that can ask other nodes.
const remoteHelp = `

From elsewhere, name the node with --node, or an object whose node is asked: pod/NAME, claim/NAME or node/NAME. netdra
then runs in the driver's pod on that node, with your rights in the cluster ("netdra help remote").`

// addRemote adds the flags to a command, and lets it query the node that they name.
//
// It wraps the current RunE and Args of the command, so it must be called last. Existing flags of the command, such as
// --node of policies, keep their meaning, and are read by their names.
func addRemote(cmd *cobra.Command, deps osdeps.Deps, streams printer.Streams, r *remoteCommand) {
	r.deps, r.streams = deps, streams
	set := cmd.Flags()
	if set.Lookup("node") == nil {
		set.StringVar(&r.node, "node", "", "name of the node to ask, through the API server")
	}
	if set.Lookup("kubeconfig") == nil {
		set.StringVar(&r.access.Kubeconfig, "kubeconfig", "",
			"kubeconfig file to find other nodes with (default: as kubectl)")
	}
	set.StringVar(&r.access.Context, "context", "", "context of the kubeconfig file")
	set.StringVarP(&r.access.Namespace, "namespace", "n", "",
		"namespace of objects that have none (default: that of the context)")
	set.StringVar(&r.access.DriverNamespace, "driver-namespace", remote.DefaultDriverNamespace,
		"namespace of the driver's pods")
	if r.all != nil {
		set.BoolVar(&r.every, "all-nodes", false, "ask every node that is to have the driver")
		cmd.MarkFlagsMutuallyExclusive("node", "all-nodes")
	}
	cmd.Long += remoteHelp
	local, args := cmd.RunE, cmd.Args
	cmd.Args = nil // an object may stand for what has to be there
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

// run reports whether the command was for another node.
//
// On a node, a command without --node and without an object stays local. Elsewhere, the name of a claim is enough to
// find its node. If that fails because there is no kubeconfig, the local command reports the missing data.
func (r *remoteCommand) run(cmd *cobra.Command, arguments []string) (called bool, err error) {
	flags := cmd.Flags()
	node, _ := flags.GetString("node") // one of the command's own has the same meaning
	r.access.Kubeconfig, _ = flags.GetString("kubeconfig")
	objects, rest := splitObjects(arguments)
	forced := node != "" || r.every || len(objects) > 0
	switch {
	case slices.ContainsFunc(r.local, flags.Changed) && !r.every: // with --all-nodes checkFlags refuses them
		return false, nil
	case !forced && (!r.claims || len(rest) == 0 || isNode(flags)):
		if r.access.Context != "" {
			return true, errors.New("cannot choose a node: --context names a cluster only; name the node with --node, " +
				"or an object whose node is asked, such as pod/NAME")
		}
		return false, nil
	}
	if err := r.checkFlags(flags); err != nil {
		return true, err
	}
	cluster, err := r.deps.Cluster(r.access)
	if err != nil {
		if forced {
			return true, err
		}
		return false, nil // the local command says what is missing on a node
	}
	if r.every {
		if len(arguments) > 0 && !r.allArguments {
			return true, errors.New("cannot use arguments with --all-nodes; name one node, or leave them out")
		}
		return true, r.all(cmd.Context(), cluster, arguments)
	}
	if !forced {
		objects, rest = claimObjects(rest), nil
	}
	if node != "" {
		objects = append(objects, remote.Object{Kind: "node", Name: node})
	}
	return true, r.query(cmd, cluster, objects, rest)
}

// splitObjects separates TYPE/NAME from other arguments. Their order does not matter: all must be on one node.
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

func claimObjects(names []string) []remote.Object {
	objects := make([]remote.Object, 0, len(names))
	for _, name := range names {
		objects = append(objects, remote.ParseClaim(name))
	}
	return objects
}

// isNode reports whether the driver runs on this machine, or the user says where its files are. In the driver's pod,
// whose variable rootVariable is, it runs also where its socket is not there yet: nothing is asked with its rights.
//
// It decides whether a claim's name is looked up on this machine or in the cluster. A file that is there is taken as a
// sign, whether or not the driver answers: on a node the reason why it does not is worth more than a detour.
func isNode(flags *pflag.FlagSet) bool {
	if os.Getenv(rootVariable) != "" {
		return true
	}
	for _, flag := range []string{"socket", "log-dir"} {
		path, err := flags.GetString(flag)
		if err != nil {
			continue // the command has no such flag
		}
		if _, err := os.Stat(path); err == nil || flags.Changed(flag) {
			return true
		}
	}
	return false
}

// checkFlags rejects flags that have no meaning on another node. Silently dropping a flag would return the wrong
// answer.
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
		return fmt.Errorf("cannot use %s %s: it is about this machine; leave it out, or run netdra on the node",
			strings.Join(wrong, ", "), elsewhere)
	}
	return nil
}

// query queries the node of the objects, which must be the same for all. Each object may expand to several lines of
// arguments, which run one after the other: commands such as explain take one device.
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
			return fmt.Errorf("cannot ask nodes %s and %s at once; name objects of one node", node, place.Node)
		}
		node = place.Node
		if object.Kind != "node" && r.object != nil {
			if len(place.Devices) == 0 {
				return fmt.Errorf("cannot ask node %s about %s %s: it has no device of this driver", node, object.Kind,
					object.Name)
			}
			lines = append(lines, r.object(place)...)
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

// commandPath returns the names of a command below the root. Aliases are resolved: an older netdra on the node may not
// have them.
func commandPath(cmd *cobra.Command) []string {
	if !cmd.HasParent() {
		return nil
	}
	return append(commandPath(cmd.Parent()), cmd.Name())
}

// qualified adds the namespace to names of claims that have none.
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

// setFlags are the flags that the user has set, as arguments. They are written as --name=value, so that a value which
// begins with a dash stays one.
func setFlags(flags *pflag.FlagSet, forward []string) []string {
	var arguments []string
	flags.Visit(func(flag *pflag.Flag) {
		if slices.Contains(forward, flag.Name) {
			arguments = append(arguments, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return arguments
}

// remoteTopic is a topic of "netdra help".
func remoteTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "remote",
		Short: "Asking other nodes, and the rights for it",
		Long: `bundle, claims, devices, doctor, explain, policies list, report and trace ask the driver of another node if --node
names it, or an argument names an object: node/NAME, pod/NAME or claim/NAME, with -n NAMESPACE. An object also chooses
what is shown: the claims of a pod, the devices of a claim. bundle, devices, doctor, policies list and report ask every
node with --all-nodes.

netdra finds the driver's pod on the node and runs the netdra of its image there, as "kubectl exec" does. It uses your
kubeconfig and nothing else, so you need these rights:

  get pods, resourceclaims              to find the node of a pod or a claim
  list pods in the driver's namespace   to find the driver's pod
  get and create pods/exec there        to run netdra in it
  list policies, topologies, schemas,   for bundle; what you may not read is left out, and named in the archive
  classes and slices

The chart has them as the ClusterRole and, in the driver's namespace, the Role dra-network-netdra, which are bound to
nobody. Who may execute commands in the driver's pods is root on every node: bind the Role to administrators only.

On a node, as root, commands without --node and without an object ask the driver of that node, and need no cluster.`,
	}
}
