package duel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dra-networking/dra-network-driver/e2e/image"
	"github.com/dra-networking/dra-network-driver/e2e/internal/idledriver"
	"github.com/dra-networking/dra-network-driver/e2e/internal/nad"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// Kinds of interfaces.
const (
	none      = "none"
	claimOnly = "claim only"
	moved     = "moved link"
	macvlan   = "macvlan"
)

// Ours is the name of the contestant that is this driver.
const Ours = "netdev and macvlan by this driver"

// otherVersion is the subdirectory of the peers directory that contains the programs from another version of this
// driver, in the same layout as bin. Use it to measure the cost of a change. The programs run with the current
// version's manifests.
const otherVersion = "before"

// contestant is one way of attaching interfaces to pods. No other code depends on a specific contestant. To add a
// contestant, add an element to the list in contestants, and its binary to the peers directory.
type contestant struct {
	name string
	// kinds are the kinds of interfaces to measure, in addition to pods without interfaces.
	kinds []string
	// binary is the contestant's program in the peers directory; empty if the contestant is built from this repository.
	binary string
	// optional is true if it is not an error that the contestant's programs are missing.
	optional bool
	// start deploys the contestant in the cluster. Any processes that it starts terminate with the cluster.
	start func(context.Context, *arena) error
	// objects returns the objects that pods with n interfaces of a kind need, as YAML. The objects are named kind-n.
	// makeRequest returns the part of the pod manifest that references them.
	objects     func(kind string, n int) string
	makeRequest func(kind string, n int) request
	// daemon is the path of the daemon's program inside its container; empty if the contestant has no daemon.
	daemon string
	// driver is the name of the DRA driver.
	driver string
	// hook and plugin are prefixes of the names of histogram sums, for the seconds spent in RunPodSandbox and in CNI
	// plugins. The daemon serves these metrics on the node port.
	port         int
	hook, plugin string
	// churns is true if a pod can be created while the previous one is terminating, because any free device is
	// suitable.
	churns bool
}

// request is the part of a pod's manifest that requests its interfaces.
type request struct {
	claim    string // ResourceClaimTemplate
	networks string // annotation k8s.v1.cni.cncf.io/networks
}

// contestants returns all contestants in the order of the page. The first two contestants are the baselines: the cost
// of a pod alone, and the cost of any claim.
func contestants() []contestant {
	claim := func(kind string, n int) request { return request{claim: objectName(kind, n)} }
	ours := contestant{
		name: Ours, kinds: []string{moved, macvlan},
		start:   func(ctx context.Context, a *arena) error { return startOurs(ctx, a, a.options.Bin) },
		objects: ourObjects, makeRequest: claim,
		daemon: "/" + stack.Driver, driver: "dra.networking", port: 9680,
		hook:   `dra_network_nri_seconds_sum{event="RunPodSandbox"`,
		plugin: `dra_network_step_seconds_sum{command="ADD"`,
		churns: true,
	}
	before := ours
	before.name, before.optional = "another version of this driver", true
	before.binary = filepath.Join(otherVersion, stack.Driver)
	before.start = func(ctx context.Context, a *arena) error {
		return startOurs(ctx, a, filepath.Join(a.options.Peers, otherVersion))
	}
	return []contestant{
		{name: "no claim", start: func(context.Context, *arena) error { return nil }},
		{
			name: "a DRA driver that does nothing", kinds: []string{claimOnly}, start: startIdle,
			driver: idledriver.Name,
			objects: func(kind string, n int) string {
				return claimTemplate(objectName(kind, n), repeat(idledriver.Class, n)...)
			}, makeRequest: claim, churns: true,
		},
		ours,
		before,
		{
			name: "dranet", kinds: []string{moved}, binary: "dranet", start: startDranet,
			objects: func(kind string, n int) string {
				return claimTemplate(objectName(kind, n), repeat("dranet", n)...)
			}, makeRequest: claim,
			daemon: "/dranet", driver: "dra.net", port: 9177,
			hook:   `dranet_driver_nri_plugin_requests_latency_seconds_sum{method="RunPodSandbox"`,
			churns: true,
		},
		{
			name: "Multus", kinds: []string{moved, macvlan}, binary: "multus", start: startMultus,
			objects: multusObjects,
			makeRequest: func(kind string, n int) request {
				var names []string
				for i := range n {
					names = append(names, fmt.Sprintf("%s-%d", objectName(kind, n), i))
				}
				return request{networks: strings.Join(names, ",")}
			},
		},
	}
}

func objectName(kind string, n int) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(kind, " ", "-"), n)
}

func repeat(text string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = text
	}
	return list
}

func startIdle(ctx context.Context, a *arena) error {
	stop, err := idledriver.Start(ctx, a.cluster, a.client, devices)
	a.stop = stop // the driver runs in this process, so it outlives the cluster
	return err
}

// startOurs installs this driver, using the programs in bin and the chart in the clone.
func startOurs(ctx context.Context, a *arena, bin string) error {
	if err := stack.Install(ctx, a.cluster, stack.Options{Clone: a.options.Clone, Bin: bin,
		Progress: a.options.Progress}); err != nil {
		return err
	}
	return a.apply(ctx, ourPolicies)
}

// startDranet deploys dranet as in its own manifest, but with an image built from its binary and with a filter that
// accepts veths.
func startDranet(ctx context.Context, a *arena) error {
	dir, err := os.MkdirTemp("", "duel-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tar := filepath.Join(dir, "dranet.tar")
	if err := image.Write(tar, image.Spec{Ref: "localhost/dranet:duel", Entrypoint: []string{"/dranet"},
		Files: []image.File{{Path: "/dranet", Source: filepath.Join(a.options.Peers, "dranet")}}}); err != nil {
		return err
	}
	if err := a.cluster.ImportImages(ctx, tar); err != nil {
		return err
	}
	if err := a.apply(ctx, dranetManifest); err != nil {
		return err
	}
	_, err = a.cluster.Exec(ctx, "kubectl", "-n", "kube-system", "rollout", "status", "daemonset/dranet",
		"--timeout=60s")
	return err
}

// startMultus makes Multus the node's CNI plugin, which delegates to the existing configuration. The runtime uses the
// first file in the configuration directory, in order of file names. It watches the directory, so it does not have to
// be restarted.
func startMultus(ctx context.Context, a *arena) error {
	if err := a.apply(ctx, nad.Definition); err != nil {
		return err
	}
	if _, err := a.cluster.Exec(ctx, "kubectl", "wait", "--for=condition=Established", "--timeout=30s",
		"crd/network-attachment-definitions.k8s.cni.cncf.io"); err != nil {
		return err
	}
	files, err := a.cluster.NodePath("/etc/cni/net.d")
	if err != nil {
		return err
	}
	pods, err := os.ReadFile(filepath.Join(files, "10-lab.conflist"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(files, "00-multus.conf"),
		fmt.Appendf(nil, multusConfig, a.cluster.Kubeconfig(), pods), 0o600)
}
