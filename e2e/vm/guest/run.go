package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const controlDir = "/run/vm"

// Run is the main function of the machine's init process. It returns only if the machine could not be switched off. If
// this process panics, the kernel also panics and reboots immediately, which terminates QEMU. In this case, the console
// output is the only information about the cause. The sync call writes all files to the host.
func Run() error {
	err := live()
	if err != nil {
		fmt.Println("vminit:", err) // on the console, in case the control directory does not exist yet
	}
	unix.Sync()
	return errors.Join(err, unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

// live prepares the machine, executes the order, and writes the outcome. Errors from the order are part of the outcome,
// whereas errors returned by live itself can be reported only on the console.
func live() error {
	if err := furnish(); err != nil {
		return err
	}
	if err := mountAll([]mount{shared(Folder{Tag: ControlTag, Path: controlDir, Writable: true})}); err != nil {
		return err
	}
	outcome := Outcome{}
	if err := obey(&outcome); err != nil {
		outcome.Problem = err.Error()
	}
	outcome.EndSeconds = uptime()
	data, err := json.Marshal(outcome)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(controlDir, OutcomeFile), data, 0o644)
}

// obey reads the order and runs its command. It measures the durations of the boot and the command with the uptime
// instead of the host's clock, because the host's clock advances even while an emulated processor is not running.
func obey(outcome *Outcome) error {
	var order Order
	data, err := os.ReadFile(filepath.Join(controlDir, OrderFile))
	if err == nil {
		err = json.Unmarshal(data, &order)
	}
	if err != nil {
		return fmt.Errorf("cannot read the order: %w", err)
	}
	if len(order.Args) == 0 {
		return nil
	}
	for _, variable := range [][2]string{
		{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, {"HOME", "/root"}, {"TERM", "dumb"},
		{Variable, "1"},
	} {
		if err := os.Setenv(variable[0], variable[1]); err != nil {
			return err
		}
	}
	if err := prepare(&order); err != nil {
		return err
	}
	outcome.ReadySeconds = uptime()
	outcome.ExitCode, err = run(&order)
	return err
}

// prepare sets up the machine for the command. Directories are mounted before modules are loaded, because they may
// contain modules. Modules are loaded before links are configured, because drivers create the links.
func prepare(order *Order) error {
	if err := smallFiles(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("vm")); err != nil {
		return fmt.Errorf("cannot set the host's name: %w", err)
	}
	for _, folder := range order.Folders {
		if err := mountAll([]mount{shared(folder)}); err != nil {
			return err
		}
	}
	if len(order.Modules) > 0 {
		output, err := exec.Command("modprobe", append([]string{"--all"}, order.Modules...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("cannot load kernel modules %v: %w: %s", order.Modules, err, output)
		}
	}
	for _, file := range order.ModuleFiles {
		if err := loadModule(file); err != nil {
			return err
		}
	}
	if err := setUp("lo"); err != nil {
		return err
	}
	if order.Uplink != "" {
		if err := nameUplink(order.Uplink); err != nil {
			return err
		}
	}
	if order.VFs > 0 {
		return makeVFs(order.VFs)
	}
	return nil
}

// run runs the command and returns its exit status. Since this is the init process, it also becomes the parent of
// orphaned processes. run waits only for the command, because all other processes terminate with the machine. If a
// signal terminates the command, the status is 128 plus the signal, as in a shell.
func run(order *Order) (int, error) {
	terminal, err := openTerminal(order.Window)
	if err != nil {
		return 0, err
	}
	defer func() { _ = terminal.Close() }()
	input := terminal
	if order.Window == nil {
		if input, err = os.Open(os.DevNull); err != nil {
			return 0, err
		}
	}
	for _, variable := range order.Env {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			return 0, err
		}
	}
	path, err := exec.LookPath(order.Args[0])
	if err != nil {
		return 0, fmt.Errorf("cannot run a command: %w", err)
	}
	process, err := os.StartProcess(path, order.Args, &os.ProcAttr{
		Dir: order.Dir, Files: []*os.File{input, terminal, terminal},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: order.Window != nil},
	})
	if err != nil {
		return 0, fmt.Errorf("cannot run a command: %w", err)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0, fmt.Errorf("cannot wait for the command: %w", err)
		case err != nil || pid != process.Pid:
		case status.Signaled():
			return 128 + int(status.Signal()), drain()
		default:
			return status.ExitStatus(), drain()
		}
	}
}

// openTerminal opens the serial line: as a terminal if there is a window, and as a plain byte stream otherwise. Without
// a window, the line must transmit the command's output unchanged, whereas OPOST would insert a carriage return before
// each newline.
func openTerminal(window *Window) (*os.File, error) {
	file, err := os.OpenFile(Terminal, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	settings, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("cannot set up the serial line: %w", err)
	}
	settings.Cflag |= unix.CLOCAL
	if window == nil {
		settings.Oflag &^= unix.OPOST
		settings.Lflag &^= unix.ECHO
	}
	err = unix.IoctlSetTermios(int(file.Fd()), unix.TCSETS, settings)
	if err == nil && window != nil {
		err = unix.IoctlSetWinsize(int(file.Fd()), unix.TIOCSWINSZ,
			&unix.Winsize{Row: window.Rows, Col: window.Columns})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot set up the serial line: %w", err)
	}
	return file, nil
}

// drain waits until all output has left the machine. It reopens the terminal, because the kernel disconnects all open
// descriptors when a shell exits whose controlling terminal it is. With a nonzero argument, TCSBRK waits and does not
// send a break (ioctl_tty(2), tcdrain(3)).
func drain() error {
	terminal, err := os.OpenFile(Terminal, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	const untilSent = 1
	return errors.Join(unix.IoctlSetInt(int(terminal.Fd()), unix.TCSBRK, untilSent), terminal.Close())
}

// uptime returns the uptime in seconds. It returns 0 if the uptime cannot be read.
func uptime() float64 {
	data, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return seconds
}
