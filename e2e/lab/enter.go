package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// namespaces returns the namespaces in the order in which they must be entered. PID comes first, because once mnt has
// been entered, /proc no longer shows the host's processes. A thread that enters a PID namespace does not move into it
// itself; only processes that it starts do (setns(2)). Therefore, "pid" is needed for commands, whereas a connection
// needs only "net".
func namespaces() []namespace {
	return []namespace{
		{"pid", unix.CLONE_NEWPID}, {"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC},
		{"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS},
	}
}

type namespace struct {
	name string
	flag int
}

// Exec runs a command inside the machine's namespaces and returns its standard output, even if the command fails. The
// error is ErrNotRunning if the machine is off, or an *exec.ExitError that contains the command's standard error if the
// command failed.
func (m *Machine) Exec(ctx context.Context, args ...string) ([]byte, error) {
	cmd := m.Command(ctx, args...)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := m.Run(cmd)
	if err != nil {
		err = fmt.Errorf("cannot run %s in %s: %w: %s", strings.Join(args, " "), m, err,
			strings.TrimSpace(errOut.String()))
	}
	return []byte(out.String()), err
}

// Command prepares a command for Run or StartCommand: the cluster's programs are in its PATH, and KUBECONFIG is set. It
// looks up the program immediately, before any namespace is entered, because exec.Command searches the caller's PATH,
// not the PATH in cmd.Env. Files in the host's /usr have the same path inside. cmd.Args keeps the name as given, for
// programs such as busybox that depend on it. The caller may set the standard streams and Dir, which must exist inside
// the machine.
func (m *Machine) Command(ctx context.Context, args ...string) *exec.Cmd {
	name := args[0]
	for _, dir := range []string{m.state.Binaries.Dir, m.state.Binaries.CNIDir} {
		if program := filepath.Join(dir, name); !strings.Contains(name, "/") && exists(program) {
			name = program
		}
	}
	cmd := exec.CommandContext(ctx, name, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Env = m.environment()
	return cmd
}

// environment returns the caller's environment without the proxy variables, since proxies cannot reach the cluster's
// addresses. KUBECACHEDIR moves kubectl's cache out of the home directory, where the cache would outlive the cluster
// and be used for the next cluster.
func (m *Machine) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return strings.HasSuffix(strings.ToLower(name), "_proxy")
	})
	b := m.state.Binaries
	return append(env,
		"PATH="+strings.Join([]string{b.Dir, b.CNIDir, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			":"),
		"KUBECONFIG="+m.Kubeconfig(),
		"KUBECACHEDIR="+filepath.Join(m.state.RunDir, "kubecache"),
	)
}

// Run starts cmd inside the machine's namespaces and waits for it.
func (m *Machine) Run(cmd *exec.Cmd) error {
	if err := m.StartCommand(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// StartCommand starts cmd inside the machine's namespaces. The caller must wait for the command. As usual, it is killed
// when the context passed to Command is done. cmd must not set a parent death signal (Pdeathsig): the kernel sends this
// signal when the starting thread exits, which happens immediately.
func (m *Machine) StartCommand(cmd *exec.Cmd) error {
	return m.onThread(cmd.Start, "pid", "net", "ipc", "uts", "mnt")
}

// DialContext opens a connection from inside the node's network namespace. The address must not require name
// resolution. A socket stays in the namespace where it was created, so the connection may be used on any thread.
// Concurrent calls are allowed.
func (m *Machine) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := m.onThread(func() error {
		d := net.Dialer{FallbackDelay: -1} // a second attempt would run on another thread
		var err error
		conn, err = d.DialContext(ctx, network, address)
		return err
	}, "net")
	return conn, err
}

// OnNetwork runs do on a thread in the machine's network namespace. Processes started by do are also in this namespace.
// Goroutines started by do are not, because they run on other threads.
func (m *Machine) OnNetwork(do func() error) error { return m.onThread(do, "net") }

// RESTConfig returns the configuration for API server clients with the administrator's permissions. It also works
// outside the machine's namespaces, because it dials from inside.
func (m *Machine) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", m.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig of %s: %w", m, err)
	}
	config.Dial = m.DialContext
	config.Proxy = noProxy
	config.QPS, config.Burst = 200, 400
	return config, nil
}

// onThread runs do on a dedicated thread that has entered the named namespaces of the machine. The thread is never used
// for anything else: it terminates together with the goroutine, which stays locked to it. A thread that no longer
// shares its process's file system attributes (CLONE_FS) cannot share them again, and a thread that failed to restore
// its namespaces would run other goroutines in them. The Go runtime terminates a thread if a goroutine exits while it
// is locked to the thread.
func (m *Machine) onThread(do func() error, names ...string) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot exit, and /proc/self shows the main thread's namespaces. Keep it locked until
			// another thread has run do.
			defer runtime.UnlockOSThread()
			result <- m.onThread(do, names...)
			return
		}
		if err := m.enter(names); err != nil {
			result <- err
			return
		}
		result <- do()
	}()
	return <-result
}

// enter moves the calling thread into namespaces. It opens all of them before entering any, because after it enters mnt
// or pid, the namespace files in the host's /proc are no longer reachable.
func (m *Machine) enter(names []string) error {
	init := m.process()
	if !init.alive() {
		return fmt.Errorf("%s is %w", m, ErrNotRunning)
	}
	type opened struct{ fd, flag int }
	var open []opened
	defer func() {
		for _, o := range open {
			_ = unix.Close(o.fd)
		}
	}()
	for _, ns := range namespaces() {
		if !slices.Contains(names, ns.name) {
			continue
		}
		fd, err := unix.Open(init.namespace(ns.name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("cannot open the %s namespace of %s: %w", ns.name, m, err)
		}
		open = append(open, opened{fd, ns.flag})
	}
	// Threads share their working directory and root. The kernel requires a thread to stop sharing them before it
	// changes its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("cannot separate a thread: %w", err)
	}
	for _, o := range open {
		if err := unix.Setns(o.fd, o.flag); err != nil {
			return fmt.Errorf("cannot enter %s, which needs root: %w", m, err)
		}
	}
	return nil
}

// namespace returns the path of one of the process's namespaces in /proc.
func (p processID) namespace(name string) string { return fmt.Sprintf("/proc/%d/ns/%s", p.PID, name) }
