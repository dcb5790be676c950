package main

import (
	"cmp"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// formFlag adds --output.
func formFlag(cmd *cobra.Command, form *string) {
	*form = printer.FormText
	cmd.Flags().VarP(formValue{form}, "output", "o", "form of the result: text (or table), json or yaml; with json and yaml the progress goes to stderr")
	// The name of a flag that exists is no error.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{printer.FormText, printer.FormJSON, printer.FormYAML}, cobra.ShellCompDirectiveNoFileComp))
}

// formValue is a flag's value: "table" is another word for text, as other commands say.
type formValue struct{ form *string }

// Set implements pflag.Value.
func (v formValue) Set(form string) error {
	if form == printer.FormTable {
		form = printer.FormText
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

// listFlag adds --output to a command that shows a table.
func listFlag(cmd *cobra.Command, form *string) {
	cmd.Flags().StringVarP(form, "output", "o", printer.FormTable, "form of the result: table, wide, json or yaml")
	// The name of a flag that exists is no error.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{printer.FormTable, printer.FormWide, printer.FormJSON, printer.FormYAML}, cobra.ShellCompDirectiveNoFileComp))
}

func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", "", "which topology, where the file has several")
}

func schemasFlag(cmd *cobra.Command, schemas *string) {
	cmd.Flags().StringVar(schemas, "schemas", "", "YAML file of CNIPluginSchemas that replace the built-in ones of the same plugins")
}

func cniPathFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "cni-path", cmp.Or(os.Getenv("CNI_PATH"), "/opt/cni/bin"), "directories of CNI plugins, separated by colons, first match wins; $CNI_PATH sets the default")
}

func socketFlag(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVar(socket, "socket", nodeclient.DefaultSocket(), "where the driver of this node answers")
}

func stateFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "state", cmp.Or(os.Getenv("NETDRA_STATE"), chainrun.DefaultState),
		"directory of the journal, by which a run that was killed is undone; $NETDRA_STATE sets the default")
}

func timeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", 30*time.Second, "how long one call of a plugin may take")
}

func logFlag(cmd *cobra.Command, log *bool) {
	cmd.Flags().BoolVar(log, "log", false, "write every CNI call with its input and output to stderr")
}

func addInputFlags(cmd *cobra.Command, f *offers.Inputs) {
	set := cmd.Flags()
	set.StringArrayVarP(&f.Files, "filename", "f", nil, `YAML file of DeviceExposurePolicies, or "-" for stdin; other kinds in it are left out`)
	set.StringVar(&f.Recording, "from", "", `directory with a recording of "netdra facts", in place of this machine`)
	set.Func("node-address", "address by which the cluster knows the node, one flag for each (default: what the driver of this node says)", func(text string) error {
		address, err := netip.ParseAddr(text)
		f.Addresses = append(f.Addresses, address)
		return err
	})
	set.StringVar(&f.Node, "node", "", "name of the node (default: that of this machine, or of the recording's directory)")
	set.StringToStringVar(&f.Labels, "node-labels", nil, "labels of the node, KEY=VALUE separated by commas, for policies with a nodeSelector")
	set.StringArrayVar(&f.Plugins, "cni-plugin", nil, "file name of a CNI plugin that the node has; give one for each (default: all that policies name)")
	set.BoolVar(&f.Features.ListAttributes, "list-attributes", false, "for a cluster with the feature DRAListTypeAttributes")
	set.BoolVar(&f.Features.CompatibilityGroups, "compatibility-groups", false, "for a cluster with the feature DRADeviceCompatibilityGroups")
	_ = cmd.MarkFlagDirname("from") // the name of a flag that exists is no error
}
