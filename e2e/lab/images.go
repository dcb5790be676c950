package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/dra-networking/dra-network-driver/e2e/image"
)

// Images that are available in every cluster, by the names that tests use in pods. Images cannot be pulled, so pods
// need imagePullPolicy Never or IfNotPresent. The images are built for each cluster from the local machine's busybox,
// so their content may differ between machines.
const (
	// PauseImage keeps the namespaces of a pod open.
	PauseImage = "localhost/pause:e2e"
	// ToolboxImage contains a shell and small network tools, all from busybox.
	ToolboxImage = "localhost/toolbox:e2e"
)

// applets lists the commands in the toolbox image.
const applets = "arp arping awk basename cat chmod chown cmp cp cut date dd df diff dirname dmesg du echo egrep " +
	"env expr " +
	"false fgrep find free grep gunzip gzip head hostname httpd id ifconfig ip kill killall less ln ls md5sum mkdir " +
	"mkfifo mknod mktemp more mount mv nc netstat nproc nslookup od ping ping6 pgrep pkill printenv printf ps pwd " +
	"readlink realpath rm rmdir route sed seq sh sha256sum sleep sort stat strings stty sync sysctl tac tail tar tee " +
	"telnet test timeout top touch tr traceroute true tty umount uname uniq uptime usleep vi watch wc wget which " +
	"whoami xargs yes"

// writeImages builds the images that every cluster needs, and returns their paths.
func (c *Cluster) writeImages() ([]string, error) {
	dir, pause := filepath.Join(c.state.RunDir, imageDir), filepath.Join(c.state.RunDir, helperDir, "pause")
	busybox, err := StaticBusybox()
	if err != nil {
		return nil, fmt.Errorf("cannot pack the toolbox: %w; install busybox-static", err)
	}
	links := map[string]string{}
	for _, a := range strings.Fields(applets) {
		links["/bin/"+a] = "busybox"
	}
	var paths []string
	for name, spec := range map[string]image.Spec{
		"pause.tar": {
			Ref: PauseImage, Entrypoint: []string{"/pause"},
			Files: []image.File{{Path: "/pause", Source: pause}},
		},
		"toolbox.tar": {
			Ref: ToolboxImage, Cmd: []string{"/bin/sh"}, Links: links,
			Files: []image.File{
				{Path: "/bin/busybox", Source: busybox},
				{Path: "/etc/passwd", Data: []byte("root:x:0:0:root:/:/bin/sh\n"), Mode: 0o644},
			},
		},
	} {
		path := filepath.Join(dir, name)
		if err := image.Write(path, spec); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// ImportImages imports image archives, for example from image.Write, into the node. Existing images with the same names
// are replaced; running containers keep the old images. In containerd, the images go into the "k8s.io" namespace, which
// the kubelet uses.
func (m *Machine) ImportImages(ctx context.Context, tars ...string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tars {
		group.Go(func() error {
			path, err := filepath.Abs(t)
			if err != nil {
				return err
			}
			if m.RuntimeComponent() == CRIO {
				return m.importCRIO(ctx, path)
			}
			f, err := os.Open(path) // pass an open file, since the path may not be visible on the node
			if err != nil {
				return fmt.Errorf("cannot import an image: %w", err)
			}
			defer func() { _ = f.Close() }() // used only for reading
			cmd := m.Command(ctx, "ctr", "--namespace=k8s.io", "images", "import", "--local", "-")
			cmd.Stdin = f
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := m.Run(cmd); err != nil {
				return fmt.Errorf("cannot import the image %s: %w: %s", path, err, out.String())
			}
			return nil
		})
	}
	return group.Wait()
}
