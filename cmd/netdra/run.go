package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// runFlags are those of chain run.
type runFlags struct {
	chainFlags
	state   string
	timeout time.Duration
	keep    bool
	hold    bool
	check   bool
	log     bool
}

func runCommand(on machine, to console) *cobra.Command {
	flags := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run TOPOLOGY --device STEP=LINK...",
		Short: "Attach a topology to a network namespace, show what is there, and undo it",
		Long: `run does what the driver does for a pod: it runs the CNI plugins of a NetworkTopology against a network namespace, in
order, and verifies that every interface is there. Then it shows the namespace, undoes everything, and proves that links,
addresses and routes of the namespace and of this machine are as before.

When a step fails, or with Ctrl-C, everything that was done is undone at once. A run that was killed, or left attached
with --keep, is undone by "netdra chain undo"; until then no further run begins.

A device is taken as one's own unless --shared says otherwise or it is a bridge: it must come back as it was, and is
brought back if a plugin does not. Links that carry this machine's default route are refused, and so are links with
addresses or a master unless they are shared: what is moved into a namespace loses these. --force takes them anyway.

{{ device.<attribute> }} has what the driver would publish, but for what a policy adds. The claim of {{ claim }} is called
as the pod. The selector of a step is checked, but you choose the link: whether the selector would take it is not.

--log shows secrets, too.`,
		Example: `  # one step takes a device; look at the interfaces from another shell until Enter
  sudo netdra chain run topologies.yaml --name macvlan-tuned --device eth1 --shared uplink --hold

  # a virtual function by its PCI address, into a namespace of yours, the result for a script
  sudo netdra chain run vf.yaml --device vf0=0000:3b:02.1 --netns blue -o json

  # why does the plugin fail? every call with input and output
  sudo netdra chain run topology.yaml --device uplink=eth1 --log

  # leave it attached, and undo it later
  sudo netdra chain run topology.yaml --device uplink=eth1 --keep
  sudo netdra chain undo`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.file = args[0]
			return flags.run(cmd.Context(), &on, to)
		},
	}
	flags.addTo(cmd)
	stateFlag(cmd, &flags.state)
	timeoutFlag(cmd, &flags.timeout)
	logFlag(cmd, &flags.log)
	cmd.Flags().BoolVar(&flags.keep, "keep", false, "leave it attached; \"netdra chain undo\" undoes it")
	cmd.Flags().BoolVar(&flags.hold, "hold", false, "wait for Enter or Ctrl-C before undoing")
	cmd.Flags().BoolVar(&flags.check, "check", false, "ask the plugins that know them for STATUS before, and for CHECK while it is attached")
	cmd.MarkFlagsMutuallyExclusive("keep", "hold")
	return cmd
}

func timeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", 30*time.Second, "how long one call of a plugin may take")
}

func logFlag(cmd *cobra.Command, log *bool) {
	cmd.Flags().BoolVar(log, "log", false, "write every CNI call with its input and output to stderr")
}

// run prepares everything that changes nothing, and then plays.
func (f *runFlags) run(ctx context.Context, on *machine, to console) error {
	if err := checkForm(f.form); err != nil {
		return err
	}
	if f.timeout <= 0 {
		return usage("--timeout %s: say how long a plugin may take, for example 30s", f.timeout)
	}
	topology, schemas, err := f.load(to.in)
	if err != nil {
		return err
	}
	if err := on.mayChange(); err != nil {
		return err
	}
	opened, err := openState(f.state, on.clock.Now())
	if err != nil {
		return err
	}
	defer func() { _ = opened.close() }() // every commit was synchronous
	s := newSession(f, on, to, opened)
	before, err := opened.load(s.executor)
	if err != nil {
		return err
	}
	if err := before.refuse(opened.undoHint()); err != nil {
		return err
	}
	if err := s.prepare(ctx, topology, schemas); err != nil {
		return err
	}
	return s.play(ctx)
}

// newSession wires the engine.
func newSession(f *runFlags, on *machine, to console, opened *state) *session {
	progress := to.out
	if f.form != formText {
		progress = to.err
	}
	s := &session{runFlags: f, on: on, to: to, out: newPrinter(progress), state: opened}
	s.executor, s.narrator = newExecutor(on, to, s.out, opened, f.directories(), f.timeout, f.log)
	return s
}

func newExecutor(on *machine, to console, out *printer, opened *state, dirs []string, timeout time.Duration, log bool) (*executor.Executor, *narrator) {
	told := &narrator{Journal: opened.chains, out: out, clock: on.clock}
	options := executor.Options{
		Exec: on.plugins(opened.lock()), Host: on.host, Journal: told, Dirs: dirs, StepTimeout: timeout, Clock: on.clock,
	}
	if log {
		options.Log = &callLog{to: to.err}
		out.terminal = false // lines of the log would stand in the middle of a line that is taken back
	}
	return executor.New(options), told
}

// prepare finds devices and namespace and compiles; nothing is changed.
func (s *session) prepare(ctx context.Context, topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas) error {
	id, err := s.on.newID()
	if err != nil {
		return err
	}
	pod, err := podOf(s.pod, id)
	if err != nil {
		return err
	}
	if s.netns != "" {
		if s.namespace, err = s.on.findNamespace(s.netns); err != nil {
			return err
		}
	}
	devices, err := s.on.bind(ctx, topology, schemas, &s.deviceFlags)
	if err != nil {
		return err
	}
	if err := s.on.takeBaselines(devices); err != nil {
		return err
	}
	plan, err := s.compile(ctx, s.on, s.executor, topology, schemas, pod, devices)
	if err != nil {
		return err
	}
	if s.check {
		if err := s.executor.Status(ctx, plan); err != nil {
			return err
		}
	}
	s.attachment = executor.NewAttachment(id, pod, []cnichain.Plan{*plan})
	s.attachment.Pin, s.attachment.CreatedAt = filepath.Join(s.on.netnsDir, id), s.on.clock.Now()
	if s.namespace == "" {
		s.namespace, s.temporary = s.attachment.Pin, true
	}
	if s.node, err = s.on.hostname(); err != nil {
		return fmt.Errorf("cannot tell the name of this machine: %w", err)
	}
	s.record = runRecord{Topology: topology.Name, Pin: s.attachment.Pin, Dirs: s.directories(), StartedAt: s.on.clock.Now()}
	return nil
}
