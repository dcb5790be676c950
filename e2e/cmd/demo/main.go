// Command demo shows the complete workflow on a real local Kubernetes cluster: devices are published, attached to pods,
// and restored afterwards.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	d := &demo{out: os.Stdout, colours: wantsColours(os.Stdout, os.Getenv)}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the demo on a real local Kubernetes",
		Long: `demo starts a Kubernetes cluster on this machine, installs the driver with its manifests, creates three links that
represent hardware, applies deploy/samples and shows the results. It needs root. The first run also needs Go and gcc, to
build the Kubernetes programs (5 to 15 minutes).`,
		Example: `  demo            run the demo, then remove everything
  demo --keep     keep the cluster running`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&d.bin, "bin", "bin", "folder with the driver's and the controller's binaries")
	cmd.Flags().StringVar(&d.name, "name", "demo", "name of the cluster; several clusters run side by side")
	cmd.Flags().BoolVar(&d.keep, "keep", false, "leave the cluster running and print how to use it")
	return cmd
}

type demo struct {
	bin     string
	name    string // cluster name
	keep    bool
	out     io.Writer
	colours bool
	start   time.Time
	cluster *lab.Cluster
	clone   string // root directory of the clone
	samples string
}

// run shows all chapters in order. Paths are relative to the clone, which must be the working directory. If the cluster
// is kept, the lab command finds it by its name.
func (d *demo) run(ctx context.Context) (err error) {
	d.clone, err = os.Getwd()
	if err != nil {
		return err
	}
	d.start, d.samples = time.Now(), filepath.Join(d.clone, "deploy", "samples")
	d.title("A local Kubernetes")
	d.cluster, err = lab.Up(ctx, lab.Options{Name: d.name, Progress: d.out, Detached: d.keep})
	if err != nil {
		return err
	}
	defer func() {
		if !d.keep || err != nil {
			err = errors.Join(err, d.cluster.Down(context.WithoutCancel(ctx)))
		}
	}()
	d.title("Installing the driver and the controller")
	if err := stack.Install(ctx, d.cluster, stack.Options{Clone: d.clone, Bin: d.bin, Progress: d.out}); err != nil {
		return err
	}
	for _, chapter := range []func(context.Context) error{d.hardware, d.policies, d.pods, d.ping, d.wholeLink,
		d.log, d.clean} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	d.title("Done in %.0f s", time.Since(d.start).Seconds())
	if d.keep {
		d.printf("The cluster is still up, with the driver and the sample policies. Try:\n\n"+
			"  bin/lab --name %[1]s kubectl apply -f deploy/samples/pods.yaml\n"+
			"  bin/lab --name %[1]s kubectl get pods,resourceclaims,resourceslices\n"+
			"  bin/lab --name %[1]s exec -- bin/netdra devices\n"+
			"  bin/lab --name %[1]s exec -- ip link\n"+
			"  bin/lab --name %[1]s down", d.name)
	}
	return nil
}

func (d *demo) hardware(context.Context) error {
	d.title("Hardware: two uplinks and a bridge")
	// The other ends of the uplinks stand in for the switch.
	for _, uplink := range []string{"uplink0", "uplink1"} {
		if err := d.cluster.AddVeth(uplink, "switch-"+uplink); err != nil {
			return err
		}
	}
	if err := d.cluster.AddBridge("br-data"); err != nil {
		return err
	}
	return d.show("ip", "-br", "link", "show")
}

func (d *demo) policies(ctx context.Context) error {
	d.title("Administrators write policies (which devices are offered) and topologies (how they are attached)")
	for _, file := range []string{"policies.yaml", "topologies.yaml"} {
		if err := d.show("kubectl", "apply", "-f", filepath.Join(d.samples, file)); err != nil {
			return err
		}
	}
	if err := d.until(ctx, "DeviceClasses of every topology", "kubectl", "wait", "--for=condition=ClassesReady",
		"--timeout=30s", "networktopologies", "--all"); err != nil {
		return err
	}
	if err := d.until(ctx, "devices published", "sh", "-c",
		`test "$(kubectl get resourceslices -o name | wc -l)" = 3`); err != nil {
		return err
	}
	// The controller counts devices with a delay, and a table full of zeros would look like a failure.
	if err := d.until(ctx, "device counts of all policies", "sh", "-c",
		`test "$(kubectl get -f "$0" -o jsonpath='{.items[?(@.status.devices>0)].metadata.name}' | wc -w)" = 3`,
		filepath.Join(d.samples, "policies.yaml")); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"kubectl", "get", "deviceexposurepolicies,networktopologies,deviceclasses"},
		{"kubectl", "get", "resourceslices", "-o",
			`custom-columns=POOL:.spec.pool.name,DEVICE:.spec.devices[*].name,SHARED:.spec.devices[*].allowMultipleAllocations,CNI:.spec.devices[*].attributes.dra\.networking/supportedCNIs.string`},
	} {
		if err := d.show(args...); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) pods(ctx context.Context) error {
	d.title("Users write a claim of three lines, and pods that name it")
	start := time.Now()
	if err := d.show("kubectl", "apply", "-f", filepath.Join(d.samples, "pods.yaml")); err != nil {
		return err
	}
	if err := d.until(ctx, "four pods Ready", "kubectl", "wait", "--for=condition=Ready", "--timeout=60s", "pod",
		"--all"); err != nil {
		return err
	}
	d.printf("  %.1f s after kubectl apply began", time.Since(start).Seconds())
	if err := d.until(ctx, "claim status written", "sh", "-c",
		`test "$(kubectl get resourceclaims -o jsonpath='{.items[*].status.devices[*].networkData.interfaceName}' | wc -w)" = 4`); err != nil {
		return err
	}
	if err := d.show("kubectl", "get", "resourceclaims", "-o",
		`custom-columns=CLAIM:.metadata.name,DEVICE:.status.allocation.devices.results[*].device,READY:.status.devices[*].conditions[?(@.type=="Ready")].status,INTERFACE:.status.devices[*].networkData.interfaceName,ADDRESS:.status.devices[*].networkData.ips[*],MAC:.status.devices[*].networkData.hardwareAddress`); err != nil {
		return err
	}
	for _, pod := range []string{"macvlan-1", "whole-link", "bridged"} {
		if err := d.show("kubectl", "exec", pod, "--", "ip", "addr", "show", "dev", "net1"); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) ping(ctx context.Context) error {
	d.title("Two pods communicate over macvlan")
	output, err := d.cluster.Exec(ctx, "kubectl", "exec", "macvlan-2", "--", "ip", "-4", "-o", "addr", "show",
		"dev", "net1")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(output)) // index, name, "inet", address/length
	if len(fields) < 4 {
		return fmt.Errorf("macvlan-2 has no address: %s", output)
	}
	peer, _, _ := strings.Cut(fields[3], "/")
	d.printf("%s is the address of macvlan-2.", peer)
	return d.show("kubectl", "exec", "macvlan-1", "--", "ping", "-c", "3", "-I", "net1", peer)
}

func (d *demo) wholeLink(ctx context.Context) error {
	d.title("A whole link moves into a pod and returns with its name")
	if _, err := d.cluster.Exec(ctx, "ip", "link", "show", "uplink1"); err == nil {
		return errors.New("uplink1 is on the node, but should be in the pod")
	}
	d.printf("✓ uplink1 is not on the node: it is net1 of pod whole-link\n")
	if err := d.show("kubectl", "delete", "pod", "whole-link", "--timeout=30s"); err != nil {
		return err
	}
	if err := d.until(ctx, "uplink1 is back on the node", "ip", "link", "show", "uplink1"); err != nil {
		return err
	}
	return d.show("ip", "-br", "link", "show", "uplink1")
}

// call contains the fields in a line of a claim's log that the demo shows.
type call struct {
	Time     time.Time       `json:"time"`
	Duration string          `json:"duration"`
	Step     string          `json:"step"`
	Command  string          `json:"command"`
	Plugin   string          `json:"plugin"`
	Stdin    json.RawMessage `json:"stdin"`
	Stdout   json.RawMessage `json:"stdout"`
}

func (d *demo) log(context.Context) error {
	d.title("The log of a claim: every call of a CNI plugin with its input and output")
	files, err := d.cluster.NodeGlob("/var/log/dra-network/default_macvlan-1-*/*.jsonl")
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("cannot find the log of macvlan-1's claim: found %v", files)
	}
	_, path, _ := strings.Cut(files[0], "/root")
	d.printf("%s", d.colour(dim, path))
	data, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		var made call
		if err := json.Unmarshal([]byte(line), &made); err != nil {
			return err
		}
		d.printf("\n%s  %s of step %q by %s, %s\n  in   %s\n  out  %s", made.Time.Format("15:04:05.000"), made.Command,
			made.Step, made.Plugin, made.Duration, made.Stdin, made.Stdout)
	}
	return nil
}

func (d *demo) clean(ctx context.Context) error {
	d.title("Cleanup after deletion")
	if err := d.show("kubectl", "delete", "-f", filepath.Join(d.samples, "pods.yaml"), "--ignore-not-found",
		"--timeout=60s"); err != nil {
		return err
	}
	for _, check := range []struct{ what, test string }{
		{"no claims", `test -z "$(kubectl get resourceclaims -o name)"`},
		{"no pinned network namespaces", `test -z "$(ls /var/run/netns | grep ^dra-)"`},
		{"no leases", `test -z "$(find /var/lib/cni/networks -type f -name '*.*.*.*' 2>/dev/null)"`},
		{"no CDI devices", `test -z "$(ls /var/run/cdi)"`},
		{"all links are back on the node", `ip link show uplink0 >/dev/null && ip link show uplink1 >/dev/null`},
		{"no ports on the bridge", `test -z "$(ls /sys/class/net/br-data/brif)"`},
	} {
		if err := d.until(ctx, check.what, "sh", "-c", check.test); err != nil {
			return err
		}
	}
	return nil
}

// Escape sequences (ECMA-48).
const (
	bold  = "\033[1m"
	dim   = "\033[2m"
	plain = "\033[0m"
)

// wantsColours reports whether a file is a terminal that supports colors and the user has not disabled colors with a
// nonempty NO_COLOR (https://no-color.org).
func wantsColours(file *os.File, getenv func(string) string) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS) //nolint:gosec // a descriptor
	return err == nil && getenv("TERM") != "dumb" && getenv("NO_COLOR") == ""
}

func (d *demo) colour(colour, text string) string {
	if !d.colours {
		return text
	}
	return colour + text + plain
}

func (d *demo) title(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, "\n%s\n\n", d.colour(bold, "── "+fmt.Sprintf(format, args...)))
}

func (d *demo) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format+"\n", args...)
}

// show runs a command on the node, and prints the command and its output.
func (d *demo) show(args ...string) error {
	shown := args
	if args[0] == "sh" {
		shown = args[2:]
	}
	// Print the command as a user would type it in the clone.
	line := strings.ReplaceAll(strings.Join(shown, " "), d.clone+string(filepath.Separator), "")
	_, _ = fmt.Fprintln(d.out, d.colour(dim, "$ "+line))
	cmd := d.cluster.Command(context.Background(), args...)
	cmd.Stdout, cmd.Stderr = d.out, d.out
	if err := d.cluster.Run(cmd); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(shown, " "), err)
	}
	_, _ = fmt.Fprintln(d.out)
	return nil
}

// until repeats a command until it succeeds, and prints the elapsed time.
func (d *demo) until(ctx context.Context, what string, args ...string) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		output, err := d.cluster.Exec(ctx, args...)
		if err == nil {
			d.printf("✓ %s (%.1f s)", what, time.Since(start).Seconds())
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("timeout after 60 s: %s: %w\n%s", what, err, output)
		case <-ticker.C:
		}
	}
}
