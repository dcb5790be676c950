package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// joinTimeout bounds the start of containerd and of kubelet, also where all code is emulated.
const joinTimeout = 3 * time.Minute

// Join makes this machine the node of the cluster in runDir, runs a command when containerd and kubelet work, and returns its
// exit status. It is for machines that end with the command: nothing is undone.
func Join(runDir string, command []string) (int, error) {
	s, err := Load(runDir)
	if err != nil {
		return 0, err
	}
	if s.Joining == nil {
		return 0, fmt.Errorf("the cluster in %s does not have its node elsewhere", runDir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	if err := s.furnish(); err != nil {
		return 0, err
	}
	if err := s.connect(); err != nil {
		return 0, err
	}
	if err := s.startNode(ctx); err != nil {
		return 0, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// furnish makes the folders, mounts and files that containerd and kubelet want.
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

// connect makes the uplink a port of the bridge with the pods: the other side of it knows all their addresses.
func (s Spec) connect() error {
	bridge, err := makeBridge(s)
	if err != nil {
		return err
	}
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
	_, api, err := net.ParseCIDR(s.APIAddress + "/32")
	if err == nil {
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: api, Gw: net.ParseIP(s.Joining.Gateway)})
	}
	if err != nil {
		return fmt.Errorf("cannot add a route to the API server: %w", err)
	}
	return forward()
}

// startNode starts containerd and kubelet one after the other: pods of the cluster may be waiting, and need the images.
func (s Spec) startNode(ctx context.Context) error {
	err := s.startComponent(ctx, "containerd", s.Joining.Containerd, func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", "/run/containerd/containerd.sock")
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return err
	}
	for _, image := range s.Joining.Images {
		if err := s.importImage(ctx, image); err != nil {
			return fmt.Errorf("cannot import the image %s: %w", image, err)
		}
	}
	return s.startComponent(ctx, "kubelet", s.Joining.Kubelet, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10248/healthz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }() // only its status matters
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

func (s Spec) importImage(ctx context.Context, path string) error {
	archive, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }() // only read
	cmd := exec.CommandContext(ctx, s.Joining.Import[0], s.Joining.Import[1:]...)
	cmd.Stdin = archive
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// startComponent returns when the component works, or has ended. What it prints is with the logs of the cluster.
func (s Spec) startComponent(ctx context.Context, name string, argv []string, works func(context.Context) error) error {
	path := filepath.Join(s.RunDir, LogDir, name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the component has its own copy
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // its result is in the state
		cancel(fmt.Errorf("it has ended: %s", cmd.ProcessState))
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := works(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not work: %w (%w); its log is %s", name, err, context.Cause(ctx), path)
		case <-tick.C:
		}
	}
}
