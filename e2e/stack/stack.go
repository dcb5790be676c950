// Package stack installs the driver and the controller in a lab cluster the way they are shipped: as images with the
// project's binaries, using the manifests in the deploy directory.
package stack

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/dra-networking/dra-network-driver/e2e/image"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// Namespace is the namespace for the driver and the controller.
const Namespace = "dra-network"

// Names of the binaries, which are also the names of their images.
const (
	Driver     = "dra-network-driver"
	Controller = "dra-network-controller"
)

// Plugins is the binary that contains all of the project's CNI plugins. It is also in the driver's image.
const Plugins = "dra-network-cni"

// CommandLine is the command-line tool that administrators run in the driver's pods.
const CommandLine = "netdra"

// DefaultTag is the image tag in the manifests.
const DefaultTag = "dev"

// PluginNames returns the names under which Plugins is installed on a node.
func PluginNames() []string { return []string{"device-only", "netdev"} }

// Options specifies what to install in a cluster.
type Options struct {
	// Clone is the path of the project's clone, which contains the deploy directory.
	Clone string
	// Bin is the directory with the binaries.
	Bin string
	// Progress receives progress messages; may be nil.
	Progress io.Writer
}

// Contents returns the names of the binaries in the image for the driver or the controller. The first one is the
// image's entry point.
func Contents(name string) []string {
	if name == Driver {
		return []string{Driver, Plugins, CommandLine}
	}
	return []string{name}
}

// Image returns the spec for the image for the driver or the controller, with binaries from bin. ref is the image name.
func Image(name, bin, ref string) image.Spec {
	spec := image.Spec{Ref: ref, Entrypoint: []string{"/" + name}}
	for _, binary := range Contents(name) {
		spec.Files = append(spec.Files, image.File{Path: "/" + binary, Source: filepath.Join(bin, binary)})
	}
	return spec
}

// Pack writes the image archives for the driver and the controller to dir, with the given tag, and returns their paths.
// It does not build anything. The binaries must be statically linked, because the images do not contain any libraries.
func Pack(bin, dir, tag string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var tars []string
	for _, name := range []string{Driver, Controller} {
		path := filepath.Join(dir, name+".tar")
		if err := image.Write(path, Image(name, bin, "localhost/"+name+":"+tag)); err != nil {
			return nil, fmt.Errorf("cannot pack %s (build it first): %w", name, err)
		}
		tars = append(tars, path)
	}
	return tars, nil
}

// Install packs, imports and deploys everything, and waits until the driver and the controller are ready. It may be
// called again with different binaries: it replaces images with the same name, and deletes pods that still run the old
// images, because applying unchanged manifests would not replace these pods. Each workload has one minute to become
// ready.
func Install(ctx context.Context, cluster *lab.Cluster, options Options) error {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	start := time.Now()
	step := func(text string) {
		_, _ = fmt.Fprintf(options.Progress, "%6.1fs  %s\n", time.Since(start).Seconds(), text)
	}
	dir, err := os.MkdirTemp("", "dra-network-images-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tars, err := Pack(options.Bin, dir, DefaultTag)
	if err != nil {
		return err
	}
	if err := cluster.ImportImages(ctx, tars...); err != nil {
		return err
	}
	step("images of driver and controller imported")
	if err := restart(ctx, cluster); err != nil {
		return err
	}
	if err := Apply(ctx, cluster, options.Clone); err != nil {
		return err
	}
	step("manifests applied")
	for _, workload := range Workloads() {
		if _, err := cluster.Exec(ctx, "kubectl", "-n", Namespace, "rollout", "status", workload,
			"--timeout=60s"); err != nil {
			logs, _ := cluster.Exec(ctx, "kubectl", "-n", Namespace, "logs", workload, "--tail=20")
			return fmt.Errorf("%s is not ready: %w\n%s", workload, err, logs)
		}
		step(workload + " is ready")
	}
	return nil
}

// restart deletes pods that run older images with the same name.
func restart(ctx context.Context, cluster *lab.Cluster) error {
	_, err := cluster.Exec(ctx, "kubectl", "delete", "pods", "--all", "--namespace", Namespace, "--ignore-not-found",
		"--wait=true", "--timeout=60s")
	return err
}

// Workloads returns the workloads in the manifests, in kubectl's notation.
func Workloads() []string { return []string{"deployment/" + Controller, "daemonset/" + Driver} }

// Commands returns the commands for applying the manifests in a deploy directory, as described in the comment in its
// kustomization.yaml. They first apply the custom resource definitions and wait until these are established: kubectl
// looks up the kinds of all objects before it writes the first object, and would not find kinds that are defined in the
// same directory. The commands do not wait for any other objects.
func Commands(deploy string) [][]string {
	return [][]string{
		{"kubectl", "apply", "-f", filepath.Join(deploy, "crds")},
		{"kubectl", "wait", "--for=condition=Established", "--timeout=30s", "-f", filepath.Join(deploy, "crds")},
		{"kubectl", "apply", "-k", deploy},
	}
}

// Apply applies the manifests in the clone's deploy directory.
func Apply(ctx context.Context, cluster *lab.Cluster, clone string) error {
	for _, args := range Commands(filepath.Join(clone, "deploy")) {
		if _, err := cluster.Exec(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}
