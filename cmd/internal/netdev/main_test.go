package netdev

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// inProcessVariable makes the test binary act as a driver that runs the plugin in its own process.
const inProcessVariable = "NETDEV_IN_PROCESS"

// driver runs the command from the environment in the same way as the driver, and prints the plugin's output.
func driver() int {
	stdin, err := io.ReadAll(os.Stdin)
	var output executor.CallOutput
	if err == nil {
		exec := executor.InProcessExec{Plugins: map[string]executor.InProcess{Name: NewInProcess()}}
		output, err = exec.Call(context.Background(), Name, stdin, os.Environ())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = os.Stdout.Write(output.Stdout)
	return 0
}

// TestMain allows this binary to also act as the plugin or as a driver.
func TestMain(m *testing.M) {
	if os.Getenv(inProcessVariable) != "" {
		os.Exit(driver())
	}
	if os.Getenv("CNI_COMMAND") != "" {
		Main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// bench is a machine with a pod.
type bench struct {
	testing.TB
	pod     string
	host    *namespace
	inPod   *namespace
	program string
	// inProcess runs the plugin in a driver process instead of a separate plugin process.
	inProcess bool
}

func newBench(t testing.TB, pod string) *bench {
	t.Helper()
	b := &bench{TB: t, pod: pod, program: "/proc/self/exe"}
	var err error
	b.host, err = openHost()
	b.must(err)
	b.inPod, err = openNamespace(pod)
	b.must(err)
	t.Cleanup(func() { b.host.close(); b.inPod.close() })
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// veth creates a link on the host, with all the properties that must be preserved.
func (b *bench) veth(name string, index int) {
	b.Helper()
	mac := net.HardwareAddr{2, 0, 0, byte(index >> 8), byte(index), 1} //nolint:gosec // small
	b.must(b.host.links.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, Index: index, MTU: 1450, HardwareAddr: mac}, PeerName: name + "p",
	}))
	link, err := b.host.links.LinkByName(name)
	b.must(err)
	b.must(b.host.links.LinkSetUp(link))
	b.must(b.host.links.LinkSetAlias(link, "rack 7"))
	b.must(b.host.links.LinkAddAltName(link, name+"-alternative"))
	b.Cleanup(func() {
		if peer, err := b.host.links.LinkByName(name + "p"); err == nil {
			_ = b.host.links.LinkDel(peer)
		}
	})
}

// links returns the relevant properties of those links in a namespace that the test has created.
func (b *bench) links(space *namespace) []string {
	b.Helper()
	found, err := space.links.LinkList()
	b.must(err)
	var lines []string
	for _, link := range found {
		attributes := link.Attrs()
		if attributes.Name == "lo" || strings.HasSuffix(attributes.Name, "p") ||
			strings.HasPrefix(attributes.Name, "pod") || attributes.Name == "eth0" {
			continue
		}
		addresses, err := space.links.AddrList(link, netlink.FAMILY_V4)
		b.must(err)
		line := fmt.Sprintf("%s %d %s mtu=%d up=%v %q %v", attributes.Name, attributes.Index, attributes.HardwareAddr,
			attributes.MTU,
			attributes.Flags&net.FlagUp != 0, attributes.Alias, attributes.AltNames)
		for _, address := range addresses {
			line += " " + address.IPNet.String()
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func (b *bench) expectLinks(space *namespace, want ...string) {
	b.Helper()
	if diff := gocmp.Diff(want, b.links(space)); diff != "" {
		b.Errorf("wrong links (-want +got):\n%s", diff)
	}
}

// clean checks that the given links are on the host, that the pod has no links, and that no record is left.
func (b *bench) clean(host []string) {
	b.Helper()
	b.expectLinks(b.host, host...)
	b.expectLinks(b.inPod)
	if left, err := filepath.Glob(stateDir + "/*.json*"); err != nil || len(left) > 0 {
		b.Errorf("leftover records: %v, error = %v", left, err)
	}
}

// order is a call to the plugin.
type order struct {
	command, ifName, netns, version, config string
	previous                                []byte
	// plugins is the directory that contains the IPAM plugins, or empty to use the reference plugins.
	plugins string
}

func (b *bench) command(o order) *exec.Cmd {
	version := o.version
	if version == "" {
		version = "1.1.0"
	}
	stdin := fmt.Sprintf(`{"cniVersion": %q, "name": "net", "type": "netdev", %s`, version, o.config)
	if o.previous != nil {
		stdin += `, "prevResult": ` + string(o.previous)
	}
	cmd := exec.Command(b.program)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+o.command, "CNI_CONTAINERID=c1", "CNI_NETNS="+o.netns,
		"CNI_IFNAME="+o.ifName,
		"CNI_PATH="+cmp.Or(o.plugins, os.Getenv("CNI_PLUGIN_DIR"), "/opt/cni/bin"), "GORACE=atexit_sleep_ms=0")
	if b.inProcess {
		cmd.Env = append(cmd.Env, inProcessVariable+"=1")
	}
	cmd.Stdin = strings.NewReader(stdin + "}")
	return cmd
}

// call runs the plugin and returns its result.
func (b *bench) call(o order) ([]byte, error) {
	cmd := b.command(o)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s%s", o.command, err, output, stderr.String())
	}
	return output, err
}

func (b *bench) add(ifName, config string) []byte {
	b.Helper()
	result, err := b.call(order{command: "ADD", ifName: ifName, netns: b.pod, config: config})
	b.must(err)
	return result
}

func (b *bench) del(ifName, config string) {
	b.Helper()
	_, err := b.call(order{command: "DEL", ifName: ifName, netns: b.pod, config: config})
	b.must(err)
}

// fails checks that a call fails with an error that contains all of the given strings.
func (b *bench) fails(o order, texts ...string) {
	b.Helper()
	_, err := b.call(o)
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			b.Errorf("%s: error = %v, want %q", o.command, err, text)
		}
	}
}

func (b *bench) rename(space *namespace, name, wanted string) {
	b.Helper()
	link, err := space.links.LinkByName(name)
	b.must(err)
	b.must(space.links.LinkSetDown(link))
	b.must(space.links.LinkSetName(link, wanted))
}

func (b *bench) bridge(space *namespace, name string) {
	b.Helper()
	b.must(space.links.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name,
		HardwareAddr: net.HardwareAddr{2, 9, 9, 9, 9, 9}}}))
}

func (b *bench) delete(space *namespace, name string) {
	b.Helper()
	link, err := space.links.LinkByName(name)
	b.must(err)
	b.must(space.links.LinkDel(link))
}

func resultOf(t testing.TB, data []byte) *types100.Result {
	t.Helper()
	result := &types100.Result{}
	if err := json.Unmarshal(data, result); err != nil {
		t.Fatal(err)
	}
	return result
}

// onMachine is like cnitest.OnMachine, but also creates a pod.
func onMachine(t *testing.T) *bench {
	t.Helper()
	if !cnitest.OnMachine(t) {
		return nil
	}
	return newBench(t, cnitest.NewPod(t, "a"))
}
