package main

import (
	"cmp"
	"errors"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func formFlag(cmd *cobra.Command, form *string) {
	outputFlag(cmd, form, printer.ResultForms(), printer.FormText)
}

func manifestFlag(cmd *cobra.Command, form *string) {
	outputFlag(cmd, form, printer.ResultForms(), printer.FormYAML)
}

func listFlag(cmd *cobra.Command, form *string) {
	outputFlag(cmd, form, printer.ListForms(), printer.FormTable)
}

// outputFlag adds --output with the same description for every command.
func outputFlag(cmd *cobra.Command, form *string, forms []string, standard string) {
	*form = standard
	cmd.Flags().VarP(formValue{form, forms}, "output", "o", "form of the result: "+printer.Alternatives(forms))
	// The only possible error is that the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
}

// formValue is the value of --output, which must be one of the forms.
type formValue struct {
	form  *string
	forms []string
}

// Set implements pflag.Value.
func (v formValue) Set(form string) error {
	if !slices.Contains(v.forms, form) {
		return exit.Refusef("cannot use --output %q; use %s", form, printer.Alternatives(v.forms))
	}
	*v.form = form
	return nil
}

// String implements pflag.Value.
func (v formValue) String() string {
	if v.form == nil {
		return ""
	}
	return *v.form
}

// Type implements pflag.Value.
func (formValue) Type() string { return "string" }

func fileFlag(cmd *cobra.Command, path *string, what, extension string) {
	cmd.Flags().StringVar(path, "file", "", "file to write the "+what+" to (default: the standard output)")
	_ = cmd.MarkFlagFilename("file", extension) // the flag exists
}

func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", "", "name of the topology, if the file has several")
}

func schemasFlag(cmd *cobra.Command, schemas *string) {
	cmd.Flags().StringVar(schemas, "schemas", "",
		"YAML file of CNIPluginSchemas; they replace the built-in schemas of the same plugins")
}

func rootFlag(cmd *cobra.Command, root *string) {
	cmd.Flags().StringVar(root, "root", cmp.Or(os.Getenv(rootVariable), "/"),
		"directory with the node's file system; $NETDRA_ROOT sets the default")
	_ = cmd.MarkFlagDirname("root") // the flag exists
}

func socketFlag(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVar(socket, "socket", nodeclient.DefaultSocket(), "socket of this node's driver")
}

func addCallFlags(cmd *cobra.Command, f *chainrun.CallOptions) {
	set := cmd.Flags()
	set.StringVar(&f.State, "state", cmp.Or(os.Getenv("NETDRA_STATE"), chainrun.DefaultState),
		"directory of the journal that undo reads; $NETDRA_STATE sets the default")
	set.DurationVar(&f.Timeout, "timeout", 30*time.Second, "time limit for each plugin call")
	set.BoolVar(&f.Log, "log", false, "log every CNI call with its input and output to stderr")
}

// addInputFlags adds the flags of [offers.Inputs].
func addInputFlags(cmd *cobra.Command, f *offers.Inputs) {
	set := cmd.Flags()
	set.StringArrayVarP(&f.Files, "filename", "f", nil,
		`YAML file of DeviceExposurePolicies, or "-" for stdin; other kinds are ignored`)
	set.StringVar(&f.Recording, "from", "",
		`directory of a recording made with "netdra facts", instead of this machine`)
	set.Func("node-address", "address of the node in the cluster; can be repeated (default: the addresses that the "+
		"driver reports)", func(text string) error {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return errors.New("is not an IP address: write it as 192.0.2.7 or 2001:db8::7")
		}
		f.Addresses = append(f.Addresses, address)
		return nil
	})
	set.StringVar(&f.Node, "node", "",
		"name of the node (default: the name of this machine or of the recording's directory)")
	set.StringToStringVar(&f.Labels, "node-labels", nil,
		"labels of the node, KEY=VALUE separated by commas, for policies with a nodeSelector")
	set.StringArrayVar(&f.Plugins, "cni-plugin", nil,
		"file name of a CNI plugin on the node; can be repeated (default: all plugins that policies name)")
	set.BoolVar(&f.Features.ListAttributes, "list-attributes", false,
		"assume that the feature gate DRAListTypeAttributes is enabled")
	set.BoolVar(&f.Features.CompatibilityGroups, "compatibility-groups", false,
		"assume that the feature gate DRADeviceCompatibilityGroups is enabled")
	socketFlag(cmd, &f.Socket)
	_ = cmd.MarkFlagDirname("from") // the flag exists
}

// logDirFlag adds the flag for the driver's log directory. An environment variable sets the default, so that users do
// not have to specify the flag each time in the driver's pod and on nodes with different paths.
func logDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "log-dir", cmp.Or(os.Getenv("NETDRA_LOG_DIR"), nodeclient.DefaultLogDir),
		"directory of the driver's log of CNI calls; $NETDRA_LOG_DIR sets the default")
	_ = cmd.MarkFlagDirname("log-dir") // the flag exists
}
