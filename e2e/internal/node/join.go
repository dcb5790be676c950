package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// joinTimeout is the time limit for starting each component. It is long enough even if all code is emulated.
const joinTimeout = 3 * time.Minute

// joinInterval is the pause between health checks for a component. Health checks are expensive on an emulated
// processor.
const joinInterval = 200 * time.Millisecond

// Join makes this machine the node of the cluster in runDir, runs a command once all components are working, and
// returns its exit status, or -1 if the command was terminated by a signal. Call it only once on each machine, as root,
// and only if the machine shuts down after the command: Join does not undo anything, and the components keep running
// after the command has exited.
func Join(runDir string, command []string) (int, error) {
	s, err := Load(runDir)
	if err != nil {
		return 0, err
	}
	if s.Joining == nil {
		return 0, fmt.Errorf("the cluster in %s does not have its node elsewhere", runDir)
	}
	if err := s.furnish(); err != nil {
		return 0, err
	}
	if err := s.connect(); err != nil {
		return 0, err
	}
	for _, component := range s.Joining.Components {
		if err := s.startComponent(component); err != nil {
			return 0, err
		}
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// furnish creates the directories, mounts and files that components need. It is the counterpart of mountAll but does
// not hide any host directories, because the machine has its own root file system, which is mostly in memory. The root
// mount is made shared before any component starts, because mount propagation to and from pods requires this.
func (s Spec) furnish() error {
	if err := os.Symlink("/run", "/var/run"); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := makeFolders(); err != nil {
		return err
	}
	const private = "/run/lab"
	if err := mountCNI(s.CNIDirs, private); err != nil {
		return err
	}
	if err := mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("cannot set the host name %q: %w", s.Hostname, err)
	}
	cgroup := filepath.Join("/sys/fs/cgroup", s.Joining.Cgroup)
	if err := os.MkdirAll(cgroup, 0o755); err != nil {
		return err
	}
	DelegateCgroup(cgroup)
	return writeFiles(s.Files)
}

// connect creates the bridge for the pods and the route to the API server. Without an uplink, the API server will run
// on this machine, so its address is assigned to the loopback interface.
func (s Spec) connect() error {
	bridge, err := makeBridge(s)
	if err != nil {
		return err
	}
	if s.Joining.Uplink == "" {
		err = serveHere(s)
	} else {
		err = s.connectUplink(bridge)
	}
	if err != nil {
		return err
	}
	return forward()
}

// connectUplink makes the uplink a port on the bridge. Through the uplink, the rest of the cluster can reach all pod
// addresses.
func (s Spec) connectUplink(bridge netlink.Link) error {
	uplink, err := netlink.LinkByName(s.Joining.Uplink)
	if err == nil {
		err = netlink.LinkSetMaster(uplink, bridge)
	}
	if err == nil {
		err = netlink.LinkSetUp(uplink)
	}
	if err != nil {
		return fmt.Errorf("cannot connect %s to the cluster: %w", s.Joining.Uplink, err)
	}
	return routeAPI(s, bridge, s.Joining.Gateway)
}

// importImage passes an archive to containerd through the standard input of containerd's client, since the archive's
// path might not exist where the client runs.
func (s Spec) importImage(ctx context.Context, path string) error {
	archive, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }() // used only for reading
	cmd := exec.CommandContext(ctx, s.Joining.Import[0], s.Joining.Import[1:]...)
	cmd.Stdin = archive
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// startComponent starts a component, and returns once the component is working and its images are imported, or once it
// has exited. The component's output is written to a file next to the cluster's logs. The context limits only the wait:
// cmd is not bound to the context, and a goroutine keeps waiting for cmd afterwards, so that no zombie remains.
func (s Spec) startComponent(c Component) error {
	path := filepath.Join(s.RunDir, LogDir, c.Name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the component has its own copy
	ctx, cancelTimeout := context.WithTimeout(context.Background(), joinTimeout)
	defer cancelTimeout()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", c.Name, err)
	}
	go func() {
		_ = cmd.Wait() // cmd.ProcessState contains the result
		cancel(fmt.Errorf("it has ended: %s", cmd.ProcessState))
	}()
	if err := c.works(ctx); err != nil {
		return fmt.Errorf("%s does not work: %w (%w); its log is %s", c.Name, err, context.Cause(ctx), path)
	}
	for _, image := range c.Images {
		if err := s.importImage(ctx, image); err != nil {
			return fmt.Errorf("cannot import the image %s: %w", image, err)
		}
	}
	return nil
}

// works waits until the component reports that it is working. If the context is done first, works returns the error
// from the last probe, which is more specific than a timeout error. The caller adds the context's cause.
func (c Component) works(ctx context.Context) error {
	// Some components generate their own certificates, and no other user has access to this machine.
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // see above
	defer client.CloseIdleConnections()
	tick := time.NewTicker(joinInterval)
	defer tick.Stop()
	for {
		err := c.probe(ctx, &client)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// probe performs a single health check.
func (c Component) probe(ctx context.Context, client *http.Client) error {
	if filepath.IsAbs(c.Health) {
		return AskRuntime(ctx, c.Health)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Health, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // only the status matters
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
