package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
	"github.com/dra-networking/dra-network-driver/e2e/vm"
)

// Directories in a machine that are populated by the "vm" commands. Earlier directories in cniPath take precedence.
const (
	commandsDir   = "/opt/project/bin" // the project's own commands
	doublesDir    = "/opt/cni/doubles" // test plugins
	pluginsDir    = "/opt/cni/bin"     // the reference plugins, and whereabouts
	extraDir      = "/opt/cni/extra"   // $EXTRA_CNI_DIR
	testsDir      = "/opt/project/tests"
	manifestsDir  = "/opt/project/deploy"
	doublesFolder = "doubles" // in the temporary directory
	// Directories in Debian's Open vSwitch and OVN packages that are not in PATH. They contain the scripts that start
	// the daemons, and ovs-vswitchd, which is linked into a directory in PATH only if its package is actually
	// installed.
	ovsPath     = "/usr/lib/openvswitch-switch:/usr/share/openvswitch/scripts:/usr/share/ovn/scripts"
	machinePath = commandsDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + ovsPath
	cniPath     = extraDir + ":" + doublesDir + ":" + pluginsDir
)

// vmFlags contains the flags that describe a machine. Commands copy the vm.Command before they change it, so the flags
// keep the values set by the user.
type vmFlags struct {
	where   *where
	mirror  string
	command vm.Command
	// cluster makes the machine a Kubernetes node; the other fields configure it.
	cluster    clusterPlace
	bin        string
	nriTimeout time.Duration
	// rdma adds RDMA to the machine, and stockRXE selects the distribution's module.
	rdma     rdmaMode
	stockRXE bool
	// ovs adds Open vSwitch to the machine.
	ovs bool
}

func vmCommand(w *where) *cobra.Command {
	f := &vmFlags{where: w}
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Run a virtual machine with real SR-IOV NICs, in seconds",
		Long: `vm boots a small Debian with emulated Intel NICs (igb) that have SR-IOV: virtual functions whose VLANs, spoof
checks and rates are really enforced, on PCIe roots and NUMA nodes of their own. All NICs are on one isolated network
segment. The machine and its files outside of /share are gone when its command ends.

QEMU, kernel and tools are Debian packages, which are fetched with apt-get and unpacked into the cache (160 MB, half
a minute, once): nothing is installed. Without KVM all code inside runs about ten times slower.

Inside, the project's commands are in the PATH, and "netdra facts" shows the devices. The CNI_PATH, and with --cluster
also the node's /opt/cni/bin, contain the reference CNI plugins, whereabouts, test doubles of the plugins sriov, bond
and ovn-k8s-cni-overlay, and the plugins in $EXTRA_CNI_DIR, which replace any of them.

With --cluster the machine is the node of a Kubernetes whose control plane runs outside, with the driver and the controller of
bin/ as they are shipped. "kubectl" inside, or "lab --name NAME-vm kubectl" outside, talks to it (NAME is "default", or the
value of --name). It ends with the machine.

With --rdma the machine has the kernel of Debian's backports, RDMA's tools, and Soft RoCE ("rdma link add NAME type rxe
netdev LINK"), whose devices follow their links into network namespaces as those of NICs do: the module is built of the
kernel's source with a patch, which is fetched and kept, too. With --rdma=exclusive an RDMA device is in one namespace only.

With --ovs the machine has Open vSwitch, OVN and the real ovs-cni. Nothing of them is started: "ovs-ctl start" does that in a shell.

With --cluster=inside the control plane is in the machine, too, and nothing of it outside. The command begins when driver and controller
work: after three minutes or more where all code is emulated.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	set := cmd.PersistentFlags()
	set.StringVar(&f.mirror, "mirror", "", "URI of a mirror of Debian (default: the mirror of this machine's apt)")
	set.IntVar(&f.command.PFs, "pfs", 2, "number of SR-IOV physical functions")
	set.IntVar(&f.command.VFs, "vfs", 0, "number of virtual functions that each of them has from the start, up to 7")
	set.IntVar(&f.command.MemoryMB, "memory", 1536, "memory in MiB")
	set.IntVar(&f.command.Processors, "processors", 1, "number of processors, all on NUMA node 0; without KVM, more "+
		"help a machine that has this one for itself")
	set.StringArrayVar(&f.command.Env, "env", nil, "NAME=value to set inside")
	set.StringSliceVar(&f.command.Modules, "module", nil, "further kernel modules to load, such as bonding")
	set.StringVar(&f.command.Share, "share", "", "folder to show, writable, as /share")
	set.DurationVar(&f.command.Timeout, "timeout", 0, "end the machine after this time (default 20m, none for a shell)")
	set.Var(&f.cluster, "cluster", "make the machine the node of a Kubernetes with driver and controller, whose "+
		"control plane is outside, or with --cluster=inside in it, too")
	set.Lookup("cluster").NoOptDefVal = string(clusterOutside)
	set.StringVar(&f.bin, "bin", "bin", "with --cluster: folder with the binaries of driver and controller")
	set.DurationVar(&f.nriTimeout, "nri-timeout", vmNRITimeout,
		"with --cluster: how long containerd waits for the driver")
	set.Var(&f.rdma, "rdma", "make it a machine with RDMA, whose devices are shared by network namespaces, or with "+
		"--rdma=exclusive in one each")
	set.Lookup("rdma").NoOptDefVal = string(rdmaShared)
	set.BoolVar(&f.stockRXE, "stock-rxe", false, "with --rdma: take Soft RoCE as Debian has it")
	set.BoolVar(&f.ovs, "ovs", false, "make it a machine with Open vSwitch and OVN")
	cmd.AddCommand(vmShellCommand(f), vmRunCommand(f), vmTestCommand(f))
	return cmd
}

// vmShellCommand returns the command for interactive use. When the shell exits, the machine stops, and only the content
// of /share is kept.
func vmShellCommand(f *vmFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "shell",
		Short: "Open a shell inside; the machine ends with it",
		Example: `  lab vm shell --vfs 4
  lab vm shell --vfs 4 --cluster
  lab vm shell --vfs 4 --cluster=inside`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := f.command
			c.Args, c.Interactive = []string{"bash", "-l"}, true
			return f.run(cmd, c)
		},
	}
}

func vmRunCommand(f *vmFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run -- COMMAND [ARGUMENT...]",
		Short: "Run a command inside and exit with its status",
		Example: `  lab vm run --vfs 4 -- netdra facts
  lab vm run --share . -- bash -c 'dmesg > /share/dmesg.txt'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := f.command
			c.Args = args
			return f.run(cmd, c)
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func vmTestCommand(f *vmFlags) *cobra.Command {
	var run, skip string
	var optional bool
	cmd := &cobra.Command{
		Use:   "test PACKAGE",
		Short: "Build the tests of a Go package, run them inside, and exit with their status",
		Long: `test builds the package's tests without cgo, and runs the binary inside. It fails also when no test has passed because all
were skipped.`,
		Example: `  lab vm test ./e2e/sriov
  lab vm test --vfs 1 --env KERNELTEST_VF=0000:41:10.0 --run VF ./cnichain/kerneltest
  lab vm test --rdma=exclusive ./e2e/rdma
  lab vm test --cluster --pfs 3 --run '^TestCluster' ./e2e/sriov`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := f.test(cmd, args[0], "-test.run="+run, "-test.skip="+skip)
			if optional && errors.Is(err, vm.ErrUnavailable) {
				return printf(cmd, "SKIPPED: %s is not tested: %v", args[0], err)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "run only tests that match, as with go test")
	cmd.Flags().BoolVar(&optional, "optional", false, "succeed if machines are not available here, for example "+
		"without a mirror of Debian")
	cmd.Flags().StringVar(&skip, "skip", "", "run only tests that do not match")
	return cmd
}

// run prepares and boots a machine, and returns an exitError if the command failed. It prepares the image, adds the
// RDMA module if requested, builds the parts of the project that the machine needs in a temporary directory, and runs
// the machine, with or without a cluster. Everything terminates with this process.
func (f *vmFlags) run(cmd *cobra.Command, c vm.Command) error {
	ctx := cmd.Context()
	kind, err := f.kind()
	if err != nil {
		return err
	}
	image, err := vm.Prepare(ctx, vm.Options{Kind: kind, CacheDir: f.where.cache, Mirror: f.mirror,
		Progress: cmd.ErrOrStderr()})
	if err != nil {
		return err
	}
	if err := f.addRDMA(ctx, image, &c, cmd.ErrOrStderr()); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "lab-vm-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // at worst, a temporary directory remains
	if err := f.equip(ctx, &c, tmp, cmd.ErrOrStderr()); err != nil {
		return err
	}
	if c.Output == nil {
		c.Output = cmd.OutOrStdout()
	}
	var result vm.Result
	switch f.cluster {
	case clusterOutside:
		result, err = f.runAsNode(ctx, image, c, tmp, cmd.ErrOrStderr())
	case clusterInside:
		result, err = f.runAsCluster(ctx, image, c, tmp, cmd.ErrOrStderr())
	default:
		result, err = image.Run(ctx, c)
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "vm: booted in %.1f s, command took %.1f s, exit status %d\n",
		result.Boot.Seconds(), result.Command.Seconds(), result.ExitCode); err != nil {
		return err
	}
	if result.ExitCode != 0 {
		return exitError(result.ExitCode)
	}
	return nil
}

// exitError is the exit status of a command that has already printed its error. It is a separate type so that main
// exits with this status without printing anything.
type exitError int

// Error implements error.
func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// doubleNames returns the names of the plugins that have test doubles.
func doubleNames() []string { return []string{"sriov", "bond", "ovn-k8s-cni-overlay"} }

// doublesUsed returns a message that lists the plugins for which test doubles are used because the directories do not
// contain the real plugin, or "" if there are none. The message prevents a test with doubles from being mistaken for a
// test of the real plugin.
func doublesUsed(extra []string) string {
	doubles := slices.DeleteFunc(doubleNames(), func(name string) bool {
		return slices.ContainsFunc(extra, func(dir string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		})
	})
	if len(doubles) == 0 {
		return ""
	}
	return strings.Join(doubles, ", ") + ": test doubles, the real plugins are not tested (EXTRA_CNI_DIR is a folder " +
		"of those)"
}

// equip builds the parts of the project that a machine needs, and adds them to the command. Later environment variables
// take precedence, so the variables that the user sets with --env come last. netdra is built here, whereas the images
// for the driver and the controller use the binaries in --bin.
func (f *vmFlags) equip(ctx context.Context, c *vm.Command, tmp string, progress io.Writer) error {
	binaries, err := lab.Build(ctx, lab.BuildOptions{CacheDir: f.where.cache, Progress: os.Stderr})
	if err != nil {
		return err
	}
	commands, doubles := filepath.Join(tmp, "commands"), filepath.Join(tmp, doublesFolder)
	if err := errors.Join(os.Mkdir(commands, 0o755), os.Mkdir(doubles, 0o755)); err != nil {
		return err
	}
	const module = "github.com/dra-networking/dra-network-driver/"
	if err := vm.Build(ctx, commands, module+"cmd/netdra"); err != nil {
		return err
	}
	plugins := []string{module + "cmd/" + stack.Plugins, module + "e2e/cmd/held"}
	for _, name := range doubleNames() {
		plugins = append(plugins, module+"e2e/cmd/"+name)
	}
	if err := vm.Build(ctx, doubles, plugins...); err != nil {
		return err
	}
	for _, name := range stack.PluginNames() {
		if err := os.Link(filepath.Join(doubles, stack.Plugins), filepath.Join(doubles, name)); err != nil {
			return err
		}
	}
	folders := map[string]string{commands: commandsDir, doubles: doublesDir, binaries.CNIDir: pluginsDir}
	if f.ovs {
		if err := addOVS(ctx, c, doubles); err != nil {
			return err
		}
	}
	for _, extra := range lab.ExtraCNIDirs() {
		folders[extra] = extraDir
	}
	if text := doublesUsed(lab.ExtraCNIDirs()); text != "" {
		_, _ = fmt.Fprintln(progress, "vm:", text) // only informational
	}
	for outside, inside := range c.Folders {
		folders[outside] = inside
	}
	c.Folders = folders
	c.Env = append([]string{
		"PATH=" + machinePath, "CNI_PATH=" + cniPath, "CNI_PLUGIN_DIR=" + pluginsDir,
	}, c.Env...)
	return nil
}

// test runs the tests in a package. The tests have a shorter time limit than the machine, so that the test binary
// prints where they hang.
func (f *vmFlags) test(cmd *cobra.Command, testedPackage string, flags ...string) error {
	dir, err := os.MkdirTemp("", "lab-vm-test-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // at worst, a temporary directory remains
	name := path.Base(testedPackage) + ".test"
	if err := vm.BuildTest(cmd.Context(), filepath.Join(dir, name), testedPackage); err != nil {
		return err
	}
	c := f.command
	c.Timeout = cmp.Or(c.Timeout, vm.DefaultTimeout)
	limit := c.Timeout - 30*time.Second // report hung tests before the machine is stopped
	c.Args = append([]string{testsDir + "/" + name, "-test.v", "-test.timeout=" + limit.String()}, flags...)
	c.Folders = map[string]string{dir: testsDir}
	seen := &testOutput{output: cmd.OutOrStdout()}
	c.Output = seen
	if err := f.run(cmd, c); err != nil {
		return err
	}
	if err := seen.check(); err != nil {
		return fmt.Errorf("%s: %w", testedPackage, err)
	}
	return nil
}
