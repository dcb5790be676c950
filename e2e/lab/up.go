package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dra-networking/dra-network-driver/e2e/internal/node"
)

// Up starts a cluster and returns when pods can be created. It first removes the leftovers of an earlier run with the
// same name, and fails immediately if a cluster with that name is running. The context limits only the startup. Unless
// the cluster is Detached, it terminates at the latest when this process does, even if this process is killed, because
// the kernel then closes this process's end of the pipe. If the startup fails, Up terminates all processes, but keeps
// the run directory with the logs until the next start.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("cannot start a cluster: %w", err)
	}
	p := newProgress(o.Progress)
	if err := checkMachine(ctx, p); err != nil {
		return nil, err
	}
	bins, err := Build(ctx, BuildOptions{CacheDir: o.CacheDir, Clone: o.Clone, Kubernetes: o.Kubernetes,
		Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	unlock, err := lockRun(ctx, o.RunDir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c := newCluster(o, state{
		Name: o.Name, NodeName: o.NodeName, RunDir: o.RunDir, Binaries: bins,
		Cgroup: cgroupName(o.Name, o.RunDir), Detached: o.Detached, Started: time.Now(),
		Runtime: o.Runtime, CRIODir: o.CRIODir,
		Nodes: o.nodeNames(), Links: o.Links,
	})
	if err := sweep(ctx, o); err != nil {
		return nil, fmt.Errorf("cannot start cluster %q: %w", o.Name, err)
	}
	ctx, cancel := o.wait(ctx)
	defer cancel()
	if err := c.bringUp(ctx, p); err != nil {
		err = fmt.Errorf("cannot start cluster %q: %w; logs are in %s", o.Name, err,
			filepath.Join(o.RunDir, node.LogDir))
		return nil, errors.Join(err, c.end(context.WithoutCancel(ctx)))
	}
	p.step("cluster %q is ready", o.Name)
	return c, nil
}

// lockRun prevents two processes from starting or stopping the same cluster concurrently. The lock file is next to the
// run directory instead of in it, because that directory is removed while the lock is held.
func lockRun(ctx context.Context, runDir string) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(runDir), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the run directory: %w", err)
	}
	return lockFile(ctx, runDir+".lock")
}

// sweep removes the leftovers of a crashed run. It returns an error if the cluster is running.
func sweep(ctx context.Context, o Options) error {
	s, err := loadState(o.RunDir)
	if err == nil && running(ctx, s) {
		return fmt.Errorf("it is running already (process %d): use it with: bin/lab --name %s kubectl get nodes; or "+
			"stop it first: bin/lab down --name %s; or, if another user owns it, start one with another name "+
			"(--name; make demo NAME=…)", s.Init.PID, o.Name, o.Name)
	}
	switch {
	case errors.Is(err, os.ErrNotExist) && exists(o.RunDir):
		return checkEmpty(o.RunDir)
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cannot read the state of an earlier run: %w; remove %s", err, o.RunDir)
	}
	return newCluster(o, s).remove(ctx)
}

// running reports whether a cluster is in use. A detached cluster that never became ready is not in use: since the
// caller holds the lock, the start must have been interrupted. A cluster that does not respond, or whose owner may have
// just exited, is given two seconds to shut down.
func running(ctx context.Context, s state) bool {
	if s.Detached && !s.Ready {
		return false
	}
	if _, err := newCluster(Options{}, s).Status(ctx); err == nil && s.Detached {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return poll(ctx, pollInterval, func(context.Context) error {
		if s.Init.alive() {
			return errors.New("it runs")
		}
		return nil
	}) != nil
}

// checkEmpty returns an error if a directory contains files, because a cluster would overwrite and later remove them.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("the run directory %s holds something else: choose an empty or a new one", dir)
	}
	return nil
}

// bringUp performs the part of Up that is subject to the start timeout. It writes cluster.json before it creates
// anything that outlives this process, so that after a crash, another process can find the file and clean up.
func (c *Cluster) bringUp(ctx context.Context, p *progress) error {
	if err := c.write(ctx); err != nil {
		return err
	}
	if err := makeCgroups(c.state.Cgroup); err != nil {
		return err
	}
	p.step("keys and configuration written")
	if err := c.startInit(ctx); err != nil {
		return err
	}
	p.step("namespaces, mounts and network made")
	// Do not wait for etcd before starting the API server, because the API server does a lot of initialization before
	// it needs etcd. All other components need the API server.
	first, rest := []Component{Etcd, APIServer}, []Component{ControllerManager, Scheduler}
	if c.opts.nodeHere() {
		first, rest = append(first, c.RuntimeComponent()), append(rest, Kubelet)
	}
	for _, comps := range [][]Component{first, rest} {
		if err := c.startAll(ctx, p, comps); err != nil {
			return err
		}
	}
	if err := c.bootAll(ctx, p); err != nil {
		return err
	}
	c.state.Ready = true
	return c.state.save()
}

// write writes all files that the run directory must contain.
func (c *Cluster) write(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.helpers(ctx); err != nil {
		return err
	}
	return c.saveSpec()
}

// prepare writes all files that the components read.
func (c *Cluster) prepare() error {
	if err := os.MkdirAll(c.state.RunDir, 0o700); err != nil {
		return err
	}
	// Write the state first: without it, directories left behind by a crash could not be recognized as part of a
	// cluster.
	if err := c.state.save(); err != nil {
		return err
	}
	for _, d := range []string{node.LogDir, node.KubeletDir, node.ContainerdDir, node.ContainersDir, node.PrivateDir,
		pkiDir, etcdDir, imageDir, helperDir, manifestDir} {
		if err := os.MkdirAll(filepath.Join(c.state.RunDir, d), 0o700); err != nil {
			return err
		}
	}
	keys, err := writePKI(filepath.Join(c.state.RunDir, pkiDir), c.state.NodeName, apiURL, c.opts.addresses())
	if err != nil {
		return err
	}
	for _, n := range c.Nodes() {
		if err := n.prepare(keys); err != nil {
			return fmt.Errorf("cannot prepare %s: %w", n, err)
		}
	}
	return c.configure("")
}

// addresses returns the IP addresses that the certificates are valid for.
func (o Options) addresses() []net.IP {
	return []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(o.address()), net.ParseIP(apiAddress)}
}

// configure writes the configuration files for the kubelet and the runtime. If baseSpec is not empty, containerd
// derives container specifications from that file.
func (m *Machine) configure(baseSpec string) error {
	kubelet, err := kubeletConfig(m.opts, m.state.Cgroup)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		kubeletFile:    kubelet,
		containerdFile: []byte(containerdConfig(m.state.Binaries.Path("runc"), baseSpec, m.opts.NRITimeout)),
	} {
		if err := os.WriteFile(filepath.Join(m.state.RunDir, name), data, 0o600); err != nil {
			return err
		}
	}
	if m.RuntimeComponent() == CRIO {
		return m.writeCRIO()
	}
	return nil
}

// saveSpec writes the Spec that the node's process 1 reads when it starts.
func (c *Cluster) saveSpec() error {
	network, err := c.opts.clusterNetwork()
	if err != nil {
		return err
	}
	cni := append(slices.Clone(c.opts.ExtraCNIDirs), c.state.Binaries.CNIDir)
	join, err := c.joining()
	if err != nil {
		return err
	}
	keep := append([]string{c.state.RunDir, c.state.Binaries.Dir}, cni...)
	if c.opts.CRIODir != "" {
		keep = append(keep, c.opts.CRIODir)
	}
	files := map[string]string{
		"/etc/hosts":                     c.opts.hostsFile(c.state.Nodes),
		"/etc/resolv.conf":               "",
		"/etc/cni/net.d/10-lab.conflist": network,
	}
	maps.Copy(files, c.opts.runtimeFiles())
	spec := node.Spec{
		RunDir: c.state.RunDir, Keep: keep, CNIDirs: cni,
		Hostname: c.state.NodeName, APIAddress: apiAddress, Bridge: bridgeName, NodeAddress: nodeAddress + subnetBits,
		Files:    files,
		Lifetime: !c.state.Detached, Joining: join,
	}
	if c.opts.several() {
		spec.Wire = wireName
	}
	return spec.Save()
}

// helpers builds this project's two small programs. They are built for each cluster from the clone's current state, so
// changes to labnode take effect without further steps. Because they do not use CGO, they run in any root file system.
func (c *Cluster) helpers(ctx context.Context) error {
	dir := filepath.Join(c.state.RunDir, helperDir)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir+string(filepath.Separator),
		"./e2e/cmd/labnode", "./e2e/cmd/pause")
	cmd.Dir = c.opts.Clone
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build labnode and pause: %w: %s", err, out)
	}
	return nil
}

// startInit starts process 1 in its own namespaces and waits until it accepts requests. Process 1 opens its control
// socket last, just before it serves requests, so a response means that the mounts and the network exist. The process
// is not bound to ctx, which is canceled when startup is complete.
func (c *Cluster) startInit(ctx context.Context) error {
	logPath := c.Logs("node")
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // process 1 has its own copy
	cmd := exec.Command(filepath.Join(c.state.RunDir, helperDir, "labnode"), c.state.RunDir)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = out, out, "/", c.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true, // an interrupt from the terminal must only reach the caller
		Cloneflags: node.Namespaces,
	}
	if err := c.startTied(cmd); err != nil {
		return fmt.Errorf("cannot make the namespaces: %w", err)
	}
	if c.state.Init, err = identify(cmd.Process.Pid); err != nil {
		return err
	}
	c.exited = make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log contains the result
		close(c.exited)
	}()
	if err := c.state.save(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = poll(ctx, 2*time.Millisecond, func(ctx context.Context) error {
		_, err := c.Status(ctx)
		if !c.state.Init.alive() {
			cancel() // it can no longer respond
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("process 1 does not answer: %w\n%s", err, tail(logPath, 15))
	}
	return nil
}

// startTied starts process 1. Unless the cluster is detached, this process keeps the writing end of a pipe, and process
// 1 watches the other end. Go opens pipes with O_CLOEXEC, so no other child of this process has the writing end. The
// writing end is therefore closed exactly when this process closes it or exits.
func (c *Cluster) startTied(cmd *exec.Cmd) error {
	if c.state.Detached {
		return cmd.Start()
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }() // process 1 has its own copy
	cmd.ExtraFiles = []*os.File{theirs}   // becomes node.LifetimeFD
	c.lifetime = ours
	return cmd.Start()
}

// startAll starts components concurrently and waits until each is healthy.
func (c *Cluster) startAll(ctx context.Context, p *progress, comps []Component) error {
	for _, comp := range comps {
		if err := c.launch(ctx, comp); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, comp := range comps {
		group.Go(func() error {
			if err := c.WaitHealthy(ctx, comp); err != nil {
				return err
			}
			if err := c.prepared(ctx, comp); err != nil {
				return err
			}
			p.step("%s works", comp)
			return nil
		})
	}
	return group.Wait()
}

// prepared waits for prerequisites for pods that a component may provide only some time after it has become healthy.
// Images are imported before the kubelet starts; otherwise, the image for a static pod would be missing.
func (c *Cluster) prepared(ctx context.Context, comp Component) error {
	switch comp {
	case Containerd, CRIO:
		ourImages, err := c.writeImages()
		if err != nil {
			return err
		}
		return c.ImportImages(ctx, append(ourImages, c.opts.Images...)...)
	case ControllerManager:
		return c.waitServiceAccount(ctx)
	case Kubelet:
		return c.waitNode(ctx)
	default:
		return nil
	}
}
