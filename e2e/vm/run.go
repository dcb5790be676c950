package vm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/dra-networking/dra-network-driver/e2e/vm/guest"
)

// DefaultTimeout is the time limit for machines, in case their command hangs. On an otherwise idle host that emulates
// all code, the longest test suite without its own timeout takes a third of this time. With a shorter timeout, tests
// would fail on a busy host merely because they are slow.
const DefaultTimeout = 20 * time.Minute

// Command describes a machine and its command. Only Args must be set. The zero value boots a machine that switches
// itself off. Run does not modify the Command.
type Command struct {
	// Args is the command, which runs as root. iproute2, ethtool, jq, bash and similar tools are available.
	Args []string
	// Env contains additional environment variables, as NAME=value; guest.Variable is always set.
	Env []string
	// Dir is the working directory in the machine; empty means /.
	Dir string
	// PFs is the number of SR-IOV physical functions; 0 means 2. Their PCI addresses are 0000:41:00.0, 0000:81:00.0,
	// 0000:42:00.0 and so on, alternating between NUMA nodes 0 and 1.
	PFs int
	// VFs is the number of virtual functions to create on each physical function before the command is run, at most 7.
	VFs int
	// MemoryMB is the amount of memory; 0 means 1536.
	MemoryMB int
	// Processors is the number of processors; 0 means 1. If all code is emulated, more processors help only if no other
	// machine runs on the host.
	Processors int
	// Modules are additional kernel modules to load; the modules for the NICs are always loaded.
	Modules []string
	// ModuleFiles are paths of kernel module files to load after Modules, together with their dependencies.
	ModuleFiles []string
	// Parameters are additional parameters on the kernel's command line, such as ib_core.netns_mode=0.
	Parameters []string
	// Share is a directory on the host that is mounted read-write at /share; empty means none.
	Share string
	// Folders maps paths in the machine to directories on the host, which are mounted read-only.
	Folders map[string]string
	// Written is like Folders, but the directories are mounted read-write.
	Written map[string]string
	// Uplink is an additional NIC that is connected to this process's network; nil means none.
	Uplink *Uplink
	// Output receives the command's stdout and stderr while it runs; nil discards them.
	Output io.Writer
	// Interactive connects the command to this process's terminal instead of Output.
	Interactive bool
	// Timeout is the time limit for the machine; 0 means DefaultTimeout, or no limit if the command is interactive.
	Timeout time.Duration
}

// Uplink is a NIC that is connected to the network namespace of the thread that calls [Image.Run]: through the gateway,
// the machine can reach addresses in this namespace. Initially, the NIC's link has no address.
type Uplink struct {
	// Link is the name of the NIC's link in the machine.
	Link string
	// Subnet is the network that the NIC is on, in CIDR notation, and Gateway is an address in it.
	Subnet, Gateway string
	// Machine is an address in the subnet. Connections to each of Ports on the namespace's 127.0.0.1 are forwarded to
	// this address.
	Machine string
	Ports   []int
}

// Result is the result of a command.
type Result struct {
	// ExitCode is the exit status of the command, or 128 plus the signal that terminated it.
	ExitCode int
	// Boot is the time from power-on to the start of the command, and Command is how long the command took. Both are
	// measured with the machine's clock.
	Boot, Command time.Duration
}

// Run boots a machine, runs the command and shuts the machine down. It is not an error if the command fails, but it is
// an error if the command could not be run or did not complete. The machine is killed if the context is canceled or
// this process exits. Several machines may run concurrently, each in its own directory. If the error is not nil, the
// exit status is undefined, and the error contains the end of the console output.
func (i *Image) Run(ctx context.Context, c Command) (Result, error) {
	return i.run(ctx, c, i.accelerator)
}

// run boots a machine for one command. All of the machine's files are in one directory, which is removed when the
// machine terminates.
func (i *Image) run(ctx context.Context, c Command, accelerator string) (Result, error) {
	dir, err := os.MkdirTemp("", "dra-vm-*")
	if err != nil {
		return Result{}, fmt.Errorf("cannot make a machine: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // at worst, a temporary directory remains
	m := &machine{imageDir: i.dir, runDir: dir, accelerator: accelerator, pfs: cmp.Or(c.PFs, 2),
		memory: cmp.Or(c.MemoryMB, 1536), processors: cmp.Or(c.Processors, 1), uplink: c.Uplink,
		parameters: c.Parameters}
	order, err := c.order(m)
	if err != nil {
		return Result{}, err
	}
	if err := i.writeRunDir(dir, order); err != nil {
		return Result{}, fmt.Errorf("cannot make a machine: %w", err)
	}
	if timeout := c.timeout(); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the command did not end within %s", timeout))
		defer cancel()
	}
	if err := i.boot(ctx, m, &c); err != nil {
		return Result{}, fmt.Errorf("%w; the console's last lines:\n%s", err, consoleTail(dir))
	}
	return readOutcome(dir)
}

func (c *Command) timeout() time.Duration {
	if c.Timeout == 0 && !c.Interactive {
		return DefaultTimeout
	}
	return c.Timeout
}

// order returns the machine's order, and adds the directories that the order requires to the machine.
func (c *Command) order(m *machine) (*guest.Order, error) {
	order := &guest.Order{Args: c.Args, Env: c.Env, Dir: c.Dir, VFs: c.VFs,
		Modules: append([]string{"igb", "igbvf"}, c.Modules...)}
	if err := c.showFolders(m, order); err != nil {
		return nil, fmt.Errorf("cannot show a folder to a machine: %w", err)
	}
	if c.Uplink != nil {
		order.Uplink = c.Uplink.Link
		order.Modules = append(order.Modules, "virtio_net")
	}
	if c.Interactive {
		columns, rows, err := term.GetSize(int(os.Stdin.Fd()))
		if err != nil {
			return nil, fmt.Errorf("an interactive command needs a terminal: %w", err)
		}
		order.Window = &guest.Window{Rows: uint16(rows), Columns: uint16(columns)}
		order.Env = append([]string{"TERM=" + os.Getenv("TERM")}, order.Env...)
	}
	return order, nil
}

// showFolders adds the host directories that the command needs to the machine and to its order. In 9p, directories are
// identified by tags, because a path may be too long. A directory must exist when the machine starts, but files in it
// may be created and removed later.
func (c *Command) showFolders(m *machine, order *guest.Order) error {
	add := func(outside, inside string, writable bool) error {
		path, err := filepath.Abs(outside)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err == nil && strings.Contains(path, ",") {
			err = fmt.Errorf("%s has a comma in its name, which QEMU does not take", path)
		}
		if err != nil {
			return err
		}
		tag := fmt.Sprintf("folder%d", len(m.folders))
		m.folders = append(m.folders, hostFolder{tag: tag, path: path, writable: writable})
		order.Folders = append(order.Folders, guest.Folder{Tag: tag, Path: inside, Writable: writable})
		return nil
	}
	if c.Share != "" {
		if err := add(c.Share, "/share", true); err != nil {
			return err
		}
	}
	for outside, inside := range c.Folders {
		if err := add(outside, inside, false); err != nil {
			return err
		}
	}
	for outside, inside := range c.Written {
		if err := add(outside, inside, true); err != nil {
			return err
		}
	}
	for i, file := range c.ModuleFiles {
		inside := fmt.Sprintf("%s/%d", moduleFilesDir, i)
		if err := add(filepath.Dir(file), inside, false); err != nil {
			return err
		}
		needed, err := dependenciesOfFile(file)
		if err != nil {
			return err
		}
		order.Modules = append(order.Modules, needed...)
		order.ModuleFiles = append(order.ModuleFiles, inside+"/"+filepath.Base(file))
	}
	return nil
}

// moduleFilesDir is the directory in the machine that contains Command.ModuleFiles.
const moduleFilesDir = "/opt/modules"

// writeRunDir writes one machine's files: its order, and the archive that it boots from.
func (i *Image) writeRunDir(dir string, order *guest.Order) error {
	data, err := json.Marshal(order)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, guest.OrderFile), data, 0o644); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(dir, "initrd"))
	if err != nil {
		return err
	}
	return errors.Join(i.initialFiles(archive), archive.Close())
}

// boot runs QEMU until the machine switches itself off. The command's result is in the outcome file, since QEMU's exit
// status is 0 whenever the machine has switched itself off. When the time limit expires, QEMU is killed, which
// terminates the machine. WaitDelay limits the wait for other processes that still have QEMU's output open.
func (i *Image) boot(ctx context.Context, m *machine, c *Command) error {
	root := filepath.Join(i.dir, "root")
	args := append([]string{"--library-path", filepath.Join(root, libraries), filepath.Join(root, qemu)},
		m.arguments()...)
	cmd := exec.CommandContext(ctx, filepath.Join(root, loader), args...)
	cmd.Env = append(os.Environ(), "QEMU_MODULE_DIR="+filepath.Join(root, libraries, "qemu"))
	cmd.WaitDelay = 5 * time.Second
	var problems bytes.Buffer
	cmd.Stderr = &problems
	// Run QEMU in a separate process group, so that it does not receive signals from the terminal, which this process
	// handles. Interactive commands are an exception, because only the terminal's foreground process group can read
	// from the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: !c.Interactive}
	cmd.Stdout = c.Output
	if c.Interactive {
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
		state, err := term.GetState(int(os.Stdin.Fd()))
		if err != nil {
			return fmt.Errorf("cannot use the terminal: %w", err)
		}
		defer func() { _ = term.Restore(int(os.Stdin.Fd()), state) }() // QEMU restores it unless QEMU was killed
	}
	// The kernel sends the death signal when the thread that started the process exits, so this thread must not exit.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("the machine was ended: %w", cause)
	}
	if err != nil {
		return fmt.Errorf("QEMU failed: %w: %s", err, bytes.TrimSpace(problems.Bytes()))
	}
	return nil
}

// consoleTail returns the end of the output from the kernel and vminit.
func consoleTail(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, "console.log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(string(data)), "\r", ""), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// readOutcome reads the outcome written by vminit. If the file does not exist, the machine terminated before it ran its
// command, either because of a panic or because vminit could not mount the control directory.
func readOutcome(dir string) (Result, error) {
	var outcome guest.Outcome
	data, err := os.ReadFile(filepath.Join(dir, guest.OutcomeFile))
	if err == nil {
		err = json.Unmarshal(data, &outcome)
	}
	if err != nil {
		return Result{}, fmt.Errorf("the machine ended without a word: %w; the console's last lines:\n%s", err,
			consoleTail(dir))
	}
	if outcome.Problem != "" {
		return Result{}, errors.New("in the machine: " + outcome.Problem)
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return Result{
		ExitCode: outcome.ExitCode, Boot: seconds(outcome.ReadySeconds),
		Command: seconds(outcome.EndSeconds - outcome.ReadySeconds),
	}, nil
}
