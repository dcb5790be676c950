package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
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
	outputFlag(cmd, form, printer.ResultForms(), printer.FormText)
}

// manifestFlag adds --output to a command that prints objects.
func manifestFlag(cmd *cobra.Command, form *string) {
	*form = printer.FormYAML
	outputFlag(cmd, form, printer.ResultForms(), printer.FormText)
}

// listFlag adds --output to a command that prints a table.
func listFlag(cmd *cobra.Command, form *string) {
	*form = printer.FormTable
	outputFlag(cmd, form, printer.ListForms(), printer.FormTable)
}

// drawingFlag adds --output to a command that draws, and its former name --format.
func drawingFlag(cmd *cobra.Command, form *string, forms []string) {
	*form = printer.FormText
	outputFlag(cmd, form, forms, printer.FormText)
	cmd.Flags().StringVar(form, "format", printer.FormText, "the same as --output")
	cmd.MarkFlagsMutuallyExclusive("output", "format")
	completeForms(cmd, "format", forms)
}

// outputFlag adds --output, with the same description in every command. It accepts the human-readable forms of other
// commands (table, wide and text) as synonyms for the default, so users need not remember which command has which.
func outputFlag(cmd *cobra.Command, form *string, forms []string, standard string) {
	synonyms := slices.DeleteFunc([]string{printer.FormText, printer.FormTable, printer.FormWide},
		func(word string) bool { return slices.Contains(forms, word) })
	cmd.Flags().VarP(formValue{form, synonyms, standard}, "output", "o", outputUsage(forms, synonyms, standard))
	completeForms(cmd, "output", forms)
}

// outputUsage returns the usage text for --output.
func outputUsage(forms, synonyms []string, standard string) string {
	mean := " means "
	if len(synonyms) > 1 {
		mean = " mean "
	}
	return "form of the result: " + printer.Alternatives(forms) + "; " + strings.Join(synonyms, " and ") + mean +
		standard
}

func completeForms(cmd *cobra.Command, flag string, forms []string) {
	// The error would be that the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
}

// formValue is a flag value with synonyms. Set accepts any word; CheckForm and CheckListForm reject unknown ones and
// list the forms that the command supports.
type formValue struct {
	form     *string
	synonyms []string
	standard string
}

// Set implements pflag.Value.
func (v formValue) Set(form string) error {
	*v.form = form
	if slices.Contains(v.synonyms, form) {
		*v.form = v.standard
	}
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

// formerFile is the value of --file under its former name. It rejects the names of output forms, because other commands
// accept them with -o, and a user who passes "json" does not want a file with that name.
type formerFile struct {
	path *string
	what string
}

// Set implements pflag.Value.
func (f formerFile) Set(path string) error {
	forms := []string{printer.FormTable, printer.FormText, printer.FormWide, printer.FormJSON, printer.FormYAML}
	if slices.Contains(forms, path) {
		return fmt.Errorf("the command only writes a %s, in no other form; name the output file with --file FILE",
			f.what)
	}
	*f.path = path
	return nil
}

// String implements pflag.Value.
func (f formerFile) String() string {
	if f.path == nil {
		return ""
	}
	return *f.path
}

// Type implements pflag.Value.
func (formerFile) Type() string { return "string" }

// fileFlag adds --file to a command that writes a file. The former name --output still works, although it selects the
// form of the result in all other commands.
func fileFlag(cmd *cobra.Command, path *string, what, extension string) {
	set := cmd.Flags()
	set.StringVar(path, "file", "", "file to write the "+what+" to (default: the standard output)")
	set.VarP(formerFile{path, what}, "output", "o", "former name of --file")
	cmd.MarkFlagsMutuallyExclusive("file", "output")
	// The errors would be that flags do not exist.
	_ = set.MarkHidden("output")
	for _, name := range []string{"file", "output"} {
		_ = cmd.MarkFlagFilename(name, extension)
	}
}

func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", "", "name of the topology, if the file has several")
	cmd.Flags().StringVar(name, "topology", "", "the same as --name")
	cmd.MarkFlagsMutuallyExclusive("name", "topology")
	_ = cmd.Flags().MarkHidden("topology") // the flag exists
}

func schemasFlag(cmd *cobra.Command, schemas *string) {
	cmd.Flags().StringVar(schemas, "schemas", "",
		"YAML file of CNIPluginSchemas; they replace the built-in schemas of the same plugins")
}

func cniPathFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "cni-path", cmp.Or(os.Getenv("CNI_PATH"), "/opt/cni/bin"),
		"directories of CNI plugins, separated by colons; the first match wins; $CNI_PATH sets the default; the "+
			"directories of the driver's own plugins are searched last")
}

// rootFlag adds the flag for the root directory of the node's file system.
func rootFlag(cmd *cobra.Command, root *string) {
	cmd.Flags().StringVar(root, "root", cmp.Or(os.Getenv(rootVariable), "/"),
		"directory with the node's file system; $NETDRA_ROOT sets the default")
	_ = cmd.MarkFlagDirname("root") // the flag exists
}

func socketFlag(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVar(socket, "socket", nodeclient.DefaultSocket(), "socket of this node's driver")
}

func stateFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "state", cmp.Or(os.Getenv("NETDRA_STATE"), chainrun.DefaultState),
		"directory of the journal that undo reads; $NETDRA_STATE sets the default")
}

func timeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", 30*time.Second, "time limit for each plugin call")
}

func logFlag(cmd *cobra.Command, log *bool) {
	cmd.Flags().BoolVar(log, "log", false, "log every CNI call with its input and output to stderr")
}

// addInputFlags adds the flags of [offers.Inputs]. It validates --node-address during parsing. Without the flag, the
// addresses stay nil and are read from the driver.
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
	set.StringVar(&f.Socket, "socket", nodeclient.DefaultSocket(), "socket of this node's driver")
	set.StringVar(&f.Kubeconfig, "kubeconfig", "",
		"kubeconfig file, to read addresses and labels from the Node object if no driver answers")
	_ = cmd.MarkFlagDirname("from") // the flag exists
}

// logDirFlag adds the flag for the directory of the driver's log. An environment variable sets the default; otherwise
// users would have to repeat the flag in the driver's pod and on nodes with other paths.
func logDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "log-dir", cmp.Or(os.Getenv("NETDRA_LOG_DIR"), nodeclient.DefaultLogDir),
		"directory of the driver's log of CNI calls; $NETDRA_LOG_DIR sets the default")
	_ = cmd.MarkFlagDirname("log-dir") // the flag exists
}

// mustSet enables and hides a flag that the former name of a command implies.
func mustSet(cmd *cobra.Command, flag string) {
	_ = cmd.Flags().Set(flag, "true") // the flag exists
	_ = cmd.Flags().MarkHidden(flag)
}
