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

// DefaultTimeout ends machines whose command hangs, which is all that it is for: it is three times what the longest
// lane without a limit of its own takes where all code is emulated and nothing else runs. With less, a busy host fails
// tests that only are slow.
const DefaultTimeout = 20 * time.Minute

// Command describes a machine and its command. Only Args must be set. The zero value boots a machine that switches
// itself off. Run does not change it.
type Command struct {
	// Args is the command, as root, with iproute2, ethtool, jq, bash and the like at hand.
	Args []string
	// Env are further environment variables, as NAME=value; guest.Variable is always set.
	Env []string
	// Dir is the working directory inside; empty means /.
	Dir string
	// PFs is how many SR-IOV physical functions there are, at PCI addresses 0000:41:00.0, 0000:81:00.0,
	// 0000:42:00.0..., by turns on NUMA nodes 0 and 1; 0 means 2.
	PFs int
	// VFs is how many virtual functions each of them gets before the command starts: at most 7.
	VFs int
	// MemoryMB is 0 for 1536.
	MemoryMB int
	// Processors is 0 for 1. Where all code is emulated, more help one machine that has the host for itself.
	Processors int
	// Modules are further kernel modules to load; the modules of the NICs are always loaded.
	Modules []string
	// ModuleFiles are files of kernel modules that are loaded after Modules, with their dependencies.
	ModuleFiles []string
	// Parameters are further ones for the kernel's command line, such as ib_core.netns_mode=0.
	Parameters []string
	// Share is a folder of the host that the command sees as /share and may write to; empty means none.
	Share string
	// Folders are folders of the host that the command sees, read-only: paths outside by paths inside.
	Folders map[string]string
	// Written are the same, for folders that it may write to.
	Written map[string]string
	// Uplink is a further NIC, which leads to the network of this process; nil means none.
	Uplink *Uplink
	// Output receives the output of the command, stdout and stderr, while it runs; nil discards it.
	Output io.Writer
	// Interactive connects the command to the terminal of this process instead of Output.
	Interactive bool
	// Timeout is after which time the machine is ended; 0 means DefaultTimeout, and no limit if it is interactive.
	Timeout time.Duration
}

// Uplink is a NIC that leads into the network namespace of the thread that calls [Image.Run]: the gateway routes to
// addresses there. It has no address inside at first.
type Uplink struct {
	// Link is how it is called inside.
	Link string
	// Subnet is the network behind it, a CIDR, and Gateway an address in it.
	Subnet, Gateway string
	// Machine is the address in it to which connections to each of Ports of the namespace's 127.0.0.1 are forwarded.
	Machine string
	Ports   []int
}

// Result is the result of a command.
type Result struct {
	// ExitCode is the command's; 128 and the signal if one ended it.
	ExitCode int
	// Boot and Command are how long it took until the command began, and from there to its end, by the machine's clock.
	Boot, Command time.Duration
}

// Run boots a machine, runs the command and ends the machine. A command that fails is not an error, but a command that
// could not be run or did not end is. The machine ends with the context and with this process. Several machines may run
// concurrently, each with a directory of its own. If the error is not nil, the exit status is undefined; the error
// contains the end of the console.
func (i *Image) Run(ctx context.Context, c Command) (Result, error) {
	return i.run(ctx, c, i.accelerator)
}

// run boots a machine for one command. Everything that it needs is in one folder, which is removed with it.
func (i *Image) run(ctx context.Context, c Command, accelerator string) (Result, error) {
	dir, err := os.MkdirTemp("", "dra-vm-*")
	if err != nil {
		return Result{}, fmt.Errorf("cannot make a machine: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover in the folder for temporary files
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

// order returns the order for the machine, and adds the directories that it needs to the machine.
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

// showFolders adds the folders of the host that the command needs to the machine and to its order. A folder is shown by
// 9p under a tag, since a path may be too long for one. A folder must exist when the machine starts; files in it may
// come and go.
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

// moduleFilesDir is the folder inside with Command.ModuleFiles.
const moduleFilesDir = "/opt/modules"

// writeRunDir writes the files of a single machine: its order, and the archive from which it boots.
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

// boot runs QEMU until the machine switches itself off. How the command ended is in the outcome file and not in QEMU's
// exit status, which is 0 for any machine that switched itself off. The time limit kills QEMU, and with it the machine;
// WaitDelay bounds the wait for whoever else has its output.
func (i *Image) boot(ctx context.Context, m *machine, c *Command) error {
	root := filepath.Join(i.dir, "root")
	args := append([]string{"--library-path", filepath.Join(root, libraries), filepath.Join(root, qemu)},
		m.arguments()...)
	cmd := exec.CommandContext(ctx, filepath.Join(root, loader), args...)
	cmd.Env = append(os.Environ(), "QEMU_MODULE_DIR="+filepath.Join(root, libraries, "qemu"))
	cmd.WaitDelay = 5 * time.Second
	var problems bytes.Buffer
	cmd.Stderr = &problems
	// A process group of its own keeps the terminal's signals away, which are for this process to handle; but the
	// terminal can be read by its own group only.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: !c.Interactive}
	cmd.Stdout = c.Output
	if c.Interactive {
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
		state, err := term.GetState(int(os.Stdin.Fd()))
		if err != nil {
			return fmt.Errorf("cannot use the terminal: %w", err)
		}
		defer func() { _ = term.Restore(int(os.Stdin.Fd()), state) }() // QEMU does, unless it was killed
	}
	// The kernel sends the death signal when the thread ends that has started the process, so this one has to stay.
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

// consoleTail returns the end of the output of the kernel and vminit.
func consoleTail(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, "console.log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(string(data)), "\r", ""), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// readOutcome reads what vminit has written. No file means that the machine ended before its command did: a panic, or
// vminit could not mount the control folder.
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
