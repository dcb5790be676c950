package ovs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	authenticationapi "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
	"github.com/dra-networking/dra-network-driver/e2e/internal/nad"
	"github.com/dra-networking/dra-network-driver/e2e/internal/ovnkube"
)

const (
	// ovnDir is the directory in which ovnkube looks for the sockets of the OVN programs.
	ovnDir = "/var/run/ovn"
	// northbound is the database to which ovnkube writes.
	northbound = "unix:" + ovnDir + "/ovnnb_db.sock"
	southbound = "unix:" + ovnDir + "/ovnsb_db.sock"
	// podPatience is the time limit for operations that involve the kubelet and containerd.
	podPatience = 4 * time.Minute
)

// doubleNode is the environment variable that makes this binary run as the OVN-Kubernetes test double. Its value is the
// node name.
const doubleNode = "OVNKUBE_DOUBLE_NODE"

// TestMain runs this binary as one of two programs: the tests, or an OVN-Kubernetes test double that the tests kill.
func TestMain(m *testing.M) {
	if node := os.Getenv(doubleNode); node != "" {
		if err := ovnkube.Run(context.Background(), os.Getenv("KUBECONFIG"), node, 0, ovnkube.RealSweep); err != nil {
			klog.ErrorS(err, "Cannot run the double of OVN-Kubernetes")
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// ovnCluster represents the machine as a Kubernetes node with the driver and OVN-Kubernetes. If the real OVN-Kubernetes
// is not installed on the machine, a test double is used with the same Open vSwitch.
type ovnCluster struct {
	*bench
	*kubenode.Node
	real          bool
	program       string
	args, environ []string
	// dir is a directory that exists until the end of the test.
	dir string
	// confDir is the directory to which ovnkube writes its plugin's configuration.
	confDir string
	// process is shared by all parts of a test.
	process *ovnkubeProcess
}

// ovnkubeProcess is a running ovnkube. Its output is in the file log.
type ovnkubeProcess struct {
	running *exec.Cmd
	ended   chan error
	log     string
}

// newOVNCluster starts OVN and ovnkube from EXTRA_CNI_DIR, or the test double. The node's default route goes through
// the bridge for one NIC, and the other NIC is the uplink for a localnet. This matches an OVN-Kubernetes installation,
// with two exceptions: OVN-Kubernetes does not provide the pods' first interfaces until firstNetwork is called, and all
// OVN daemons are child processes of this test.
func newOVNCluster(t *testing.T) *ovnCluster {
	t.Helper()
	c := &ovnCluster{Node: kubenode.Join(t, podPatience, "use make ovs-ovnkube"), dir: t.TempDir(),
		confDir: t.TempDir(), process: &ovnkubeProcess{}}
	for _, dir := range filepath.SplitList(os.Getenv("CNI_PATH")) {
		if _, err := os.Stat(filepath.Join(dir, "ovnkube")); err == nil {
			c.real, c.program = true, filepath.Join(dir, "ovnkube")
		}
	}
	c.bench = newBench(t)
	c.DriverReady()
	c.Apply(nad.Definition)
	if c.real {
		c.startOVN()
		c.wire()
		c.configure()
	} else {
		c.Log("using a double of OVN-Kubernetes: EXTRA_CNI_DIR lacks ovnkube, ovn-k8s-cni-overlay or crds/*.yaml")
		c.wire()
		c.configureDouble()
	}
	c.startOVNKube()
	c.Cleanup(func() {
		c.killOVNKube()
		if c.Failed() {
			c.Logf("warnings and errors in ovnkube's log:\n%s", c.complaints())
		}
	})
	return c
}

// node returns the name of this machine in the cluster.
func (c *ovnCluster) node() string {
	c.Helper()
	nodes, err := c.Client.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	c.must(err)
	return nodes.Items[0].Name
}

// configureDouble configures this binary to run as the test double for ovnkube. It creates what ovn-controller would
// create: the pod bridge and its connection to the localnet bridge. All networks share the pod bridge.
func (c *ovnCluster) configureDouble() {
	c.Helper()
	c.vsctl("add-br", "br-int",
		"--", "add-port", "br-int", "patch-int", "--", "set", "interface", "patch-int", "type=patch",
		"options:peer=patch-localnet1",
		"--", "add-port", "br-localnet1", "patch-localnet1", "--", "set", "interface", "patch-localnet1", "type=patch",
		"options:peer=patch-int")
	var err error
	c.program, err = os.Executable()
	c.must(err)
	c.environ = append(os.Environ(), doubleNode+"="+c.node())
}

// startOVN starts the OVN databases, the daemon that translates between them, and the daemon that creates flows.
func (c *ovnCluster) startOVN() {
	c.Helper()
	c.must(errors.Join(os.RemoveAll(ovnDir), os.MkdirAll(ovnDir, 0o755)))
	for _, name := range []string{"nb", "sb"} {
		file := filepath.Join(ovnDir, "ovn"+name+"_db.db")
		c.Exec("ovsdb-tool", "create", file, "/usr/share/ovn/ovn-"+name+".ovsschema")
		base := filepath.Join(ovnDir, "ovn"+name+"_db")
		c.child(server, file, "--remote=punix:"+base+".sock", "--unixctl="+base+".ctl", "--pidfile="+base+".pid")
	}
	c.eventually("northbound database", func() error { return c.try("ovn-nbctl", "--timeout=5", "init") })
	c.eventually("southbound database", func() error { return c.try("ovn-sbctl", "--timeout=5", "init") })
	c.vsctl("set", "open", ".", "external-ids:system-id=e2e", "external-ids:ovn-remote="+southbound,
		"external-ids:ovn-encap-type=geneve", "external-ids:ovn-encap-ip=127.0.0.1")
	c.child("ovn-northd", "--ovnnb-db="+northbound, "--ovnsb-db="+southbound, "--pidfile")
	c.child("ovn-controller", "unix:"+runDir+"/db.sock", "--pidfile")
}

// child starts a daemon in the foreground and kills it at the end of the test.
func (c *ovnCluster) child(args ...string) {
	c.Helper()
	args = append(args, "-vconsole:off", "--log-file="+filepath.Join(ovnDir, filepath.Base(args[0])+".log"))
	cmd := exec.Command(args[0], args[1:]...)
	c.must(cmd.Start())
	c.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() }) // a killed daemon returns an error
}

// wire creates the setup that an administrator prepares on such a node: a bridge for the NIC that carries the node's
// default route, and a bridge for the other NIC, for a localnet. OVN-Kubernetes uses the first bridge as its gateway,
// and therefore expects this bridge to be named after the NIC. wire also creates a symlink to iptables under the name
// that distributions use.
func (c *ovnCluster) wire() {
	c.Helper()
	gateway, local := c.uplink(pf1), c.uplink(pf0)
	for _, link := range []string{gateway, local} {
		c.Exec("ip", "link", "set", link, "up")
	}
	c.vsctl("add-br", "br"+gateway, "--", "add-port", "br"+gateway, gateway)
	c.vsctl("add-br", "br-localnet1", "--", "add-port", "br-localnet1", local)
	c.vsctl("set", "open", ".", "external-ids:ovn-bridge-mappings=localnet1:br-localnet1")
	c.Exec("ip", "address", "add", "172.31.0.1/24", "dev", "br"+gateway)
	c.Exec("ip", "link", "set", "br"+gateway, "up")
	c.Exec("ip", "route", "add", "default", "via", "172.31.0.254", "dev", "br"+gateway)
	c.Cleanup(func() { c.Exec("ip", "route", "del", "default", "via", "172.31.0.254") })
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore"} {
		for _, family := range []string{"", "6"} {
			name := strings.Replace(name, "ip", "ip"+family, 1)
			path := filepath.Join("/usr/sbin", name)
			if err := os.Symlink("xtables-nft-multi", path); err != nil && !errors.Is(err, os.ErrExist) {
				c.Fatal(err)
			}
		}
	}
}

// configure creates the objects in the cluster that ovnkube needs, and sets its arguments: all components of ovnkube
// run in a single process with administrator permissions.
func (c *ovnCluster) configure() {
	c.Helper()
	definitions, err := filepath.Glob(filepath.Join(filepath.Dir(c.program), "crds", "*.yaml"))
	c.must(err)
	for _, file := range definitions {
		text, err := os.ReadFile(file)
		c.must(err)
		c.Apply(string(text))
	}
	c.Apply(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: ovnkube, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ovnkube}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: ovnkube, namespace: default}]
`)
	token, err := c.Client.CoreV1().ServiceAccounts("default").CreateToken(c.Context(), "ovnkube",
		&authenticationapi.TokenRequest{}, metav1.CreateOptions{})
	c.must(err)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	c.must(err)
	c.must(rest.LoadTLSFiles(config))
	authority := filepath.Join(c.TempDir(), "ca.crt")
	c.must(os.WriteFile(authority, config.CAData, 0o600))
	node := c.node()
	// The node is a zone of its own: without zones, the October 2024 version of ovnkube cannot restart if there is a
	// localnet.
	c.Exec("ovn-nbctl", "set", "NB_Global", ".", "name="+node, "options:name="+node)
	c.args = []string{"--init-node", node, "--init-cluster-manager", node, "--init-ovnkube-controller", node,
		"--k8s-apiserver", config.Host, "--k8s-cacert", authority, "--k8s-token", token.Status.Token,
		"--cluster-subnets", "10.244.0.0/16/24", "--k8s-service-cidrs", "10.96.0.0/16", "--enable-multi-network",
		"--enable-interconnect", "--zone", node,
		"--gateway-mode", "shared", "--gateway-interface", "br" + c.uplink(pf1), "--gateway-nexthop", "172.31.0.254",
		"--loglevel", "2"}
	// If KUBECONFIG were set, the plugin would read that file, which does not exist in the driver's container.
	c.environ = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "KUBECONFIG=")
	})
}

// startOVNKube starts ovnkube and waits until it accepts requests from the plugin. If ovnkube exits, startOVNKube
// restarts it, as the kubelet would: ovnkube exits if any part of its startup takes too long.
func (c *ovnCluster) startOVNKube() {
	c.Helper()
	c.launch()
	start := time.Now()
	c.Until("ovnkube that takes requests", func(ctx context.Context) error {
		select {
		case err := <-c.process.ended:
			c.Logf("ovnkube exited: %v\n%s", err, c.complaints())
			c.launch()
		default:
		}
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", ovnkube.Socket)
		if err != nil {
			return err
		}
		return connection.Close()
	})
	c.Logf("ovnkube took %s to start", time.Since(start).Round(time.Second))
}

// launch starts ovnkube with a new log file.
func (c *ovnCluster) launch() {
	c.Helper()
	file, err := os.CreateTemp(c.dir, "ovnkube-*.log")
	c.must(err)
	c.process.log = file.Name()
	args := slices.Clone(c.args)
	if c.real {
		args = append(args, "--cni-conf-dir", c.confDir)
	}
	c.process.running = exec.Command(c.program, args...)
	c.process.running.Stdout, c.process.running.Stderr = file, file
	c.process.running.Env = c.environ
	c.must(c.process.running.Start())
	ended := make(chan error, 1)
	c.process.ended = ended
	go func(cmd *exec.Cmd) { ended <- errors.Join(cmd.Wait(), file.Close()) }(c.process.running)
}

// complaints returns the lines in ovnkube's log with a level above info.
func (c *ovnCluster) complaints() string {
	c.Helper()
	text, err := os.ReadFile(c.process.log)
	c.must(err)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "I") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-60):], "")
}

// killOVNKube simulates a crash of ovnkube.
func (c *ovnCluster) killOVNKube() {
	c.Helper()
	_ = c.process.running.Process.Kill() // it may already have exited, which the channel reports
	c.Logf("ovnkube exited: %v", <-c.process.ended)
}

// rows describes the contents of a database: for each table, the names of its rows, or the number of rows if they have
// no names.
func (c *ovnCluster) rows(database string) (lines []string) {
	c.Helper()
	// Read only the standard output, because on a busy machine, the program also prints warnings.
	text, err := exec.CommandContext(c.Context(), "ovsdb-client", "--format=json", "dump", database).Output()
	c.must(err)
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var table struct {
			Caption  string   `json:"caption"`
			Headings []string `json:"headings"`
			Data     [][]any  `json:"data"`
		}
		c.must(decoder.Decode(&table))
		column := slices.Index(table.Headings, "name")
		if column < 0 {
			lines = append(lines, fmt.Sprintf("%s: %d", table.Caption, len(table.Data)))
			continue
		}
		for _, row := range table.Data {
			lines = append(lines, fmt.Sprintf("%s: %v", table.Caption, row[column]))
		}
	}
	slices.Sort(lines)
	return lines
}

// state returns the contents of the Open vSwitch databases and, unless the test double is used, the OVN databases.
func (c *ovnCluster) state() []string {
	c.Helper()
	rows := c.rows("unix:" + runDir + "/db.sock")
	if c.real {
		rows = append(c.rows(northbound), rows...)
	}
	return rows
}

// network creates a NetworkAttachmentDefinition for OVN-Kubernetes, and a topology that attaches pods to this network
// by sharing the localnet's uplink.
func (c *ovnCluster) network(name, config, steps string) {
	c.Helper()
	c.Apply(nad.Network(c.Namespace, name, "", fmt.Sprintf(`{"cniVersion": "0.4.0", "type": "ovn-k8s-cni-overlay",
    "name": "tenant-%[1]s", "netAttachDefName": "%[2]s/%[1]s", %[3]s}`, name, c.Namespace, config)))
	c.Apply(fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: %[1]s}
spec:
  steps:
  - name: net
    type: ovn-k8s-cni-overlay
    selector: {cel: 'device.attributes["dra.networking"].?physicalNetworkName.orValue("") == "localnet1"'}
    config: {netAttachDefName: "{{ pod.namespace }}/%[1]s"}%[2]s
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s}
spec: {spec: {devices: {requests: [{name: net, exactly: {deviceClassName: %[1]s-net}}]}}}
`, name, steps))
	c.Until("DeviceClass of "+name, func(ctx context.Context) error {
		_, err := c.Client.ResourceV1().DeviceClasses().Get(ctx, name+"-net", metav1.GetOptions{})
		return err
	})
}

// create creates a pod on a network and waits until it is Ready. Pods are created one after the other, because all code
// is emulated.
func (c *ovnCluster) create(name, network string) {
	c.Helper()
	start := time.Now()
	c.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, annotations: {k8s.v1.cni.cncf.io/networks: %[2]s}}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  resourceClaims: [{name: net, resourceClaimTemplateName: %[2]s}]
  containers:
  - name: main
    image: localhost/toolbox:e2e
    imagePullPolicy: Never
    command: [sh, -c, exec sleep 86400]
    env: [{name: %[3]s, value: %[4]s}]
    resources: {claims: [{name: net}]}
`, name, network, kubenode.Observed, c.Mark(name)))
	c.Ready(name)
	c.Logf("pod %s took %s", name, time.Since(start).Round(time.Second))
}

// inPod runs one of the machine's commands in a pod's network namespace.
func (c *ovnCluster) inPod(name string, args ...string) string {
	c.Helper()
	folder, err := c.Process(name)
	c.must(err)
	return c.Exec(append([]string{"nsenter", "--net=" + filepath.Join(folder, "ns/net")}, args...)...)
}

// address returns the IP address of net1 in a pod, and checks that the address and the link are as expected.
func (c *ovnCluster) address(name, network, link string) string {
	c.Helper()
	return c.addressOf(name, "net1", network, link)
}

func (c *ovnCluster) addressOf(name, ifName, network, link string) string {
	c.Helper()
	shown := c.inPod(name, "ip", "address", "show", "dev", ifName)
	if !strings.Contains(shown, "inet "+network) || !strings.Contains(shown, link) {
		c.Errorf("%s of %s:\n%s\nwant an address in %s, and %s", ifName, name, shown, network, link)
	}
	_, rest, _ := strings.Cut(shown, "inet ")
	address, _, _ := strings.Cut(rest, "/")
	return address
}

// reaches waits until a pod can reach an address through net1. Ports come up some time after the server has responded.
func (c *ovnCluster) reaches(name, address string) {
	c.Helper()
	c.reachesBy(name, "net1", address)
}

func (c *ovnCluster) reachesBy(name, ifName, address string) {
	c.Helper()
	folder, err := c.Process(name)
	c.must(err)
	c.eventually("answer from "+address, func() error {
		return c.try("nsenter", "--net="+filepath.Join(folder, "ns/net"), "ping", "-c1", "-W5", "-I", ifName, address)
	})
}

// TestClusterOVNKubernetes runs the shipped examples from the published design that involve Open vSwitch, and pods that
// must survive when processes are killed. OVN-Kubernetes (the real one or a test double) runs on the same node, whose
// default route goes through an Open vSwitch bridge. At the end, the databases have the same contents as before.
func TestClusterOVNKubernetes(t *testing.T) {
	c := newOVNCluster(t)
	before := c.state()
	c.part("example 8", (*ovnCluster).example8)
	c.part("example 3", (*ovnCluster).example3)
	c.part("example 7", (*ovnCluster).example7)
	// These are the policies that the chart creates with defaultPolicies.openVSwitchUplinks.
	c.Apply(fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: exclude-infrastructure}
spec:
  priority: 1000
  action: exclude
  selector:
    cel: >-
      device.attributes["dra.networking"].defaultRoute == true &&
      !(device.attributes["dra.networking"].ifName in ["%s"])
`, c.uplink(pf0)))
	c.part("example 9", (*ovnCluster).example9)
	c.Apply(fmt.Sprintf(localnetUplink, c.uplink(pf0)))
	c.part("kills", (*ovnCluster).livesThroughKills)
	c.part("first interfaces", (*ovnCluster).hasFirstInterfaces)
	// The October 2024 version of ovnkube does not remove a network's load balancer groups together with the network.
	c.restored(before, "Load_Balancer_Group table: tenant.")
}

// restored waits until the databases are back in their initial state, except for the kept rows, and the driver has no
// pod records. It also plants a leak to verify that the comparison detects it.
func (c *ovnCluster) restored(before []string, kept string) {
	c.Helper()
	c.Until("databases that are as they were, and nothing that the driver still has", func(ctx context.Context) error {
		return errors.Join(append(changedRows(before, c.state(), kept), kubenode.Forgotten(ctx))...)
	})
	c.plantRows()
}

// changedRows returns errors that list the rows that were added or removed. It takes the number of rows into account,
// because two rows may have the same name.
func changedRows(before, after []string, kept string) (problems []error) {
	count := map[string]int{}
	for _, line := range after {
		count[line]++
	}
	for _, line := range before {
		count[line]--
	}
	for _, line := range slices.Sorted(maps.Keys(count)) {
		switch n := count[line]; {
		case n > 0 && (kept == "" || !strings.Contains(line, kept)):
			problems = append(problems, fmt.Errorf("unexpected row %s (%d)", line, n))
		case n < 0:
			problems = append(problems, fmt.Errorf("%s no longer exists (%d)", line, -n))
		}
	}
	return problems
}

// plantRows creates two switches with the same name in the northbound database, and checks that changedRows detects the
// second one. If the test double is used, it creates a port instead.
func (c *ovnCluster) plantRows() {
	c.Helper()
	if !c.real {
		before := c.state()
		c.vsctl("add-port", "br-int", "leak", "--", "set", "interface", "leak", "type=internal")
		seen := changedRows(before, c.state(), "")
		c.vsctl("del-port", "br-int", "leak")
		if !slices.ContainsFunc(seen, func(problem error) bool {
			return strings.Contains(problem.Error(), "Port table: leak")
		}) {
			c.Errorf("the planted port was not detected, got only %v", seen)
		}
		return
	}
	const leak = "Logical_Switch table: leak"
	plant := func() {
		c.must(c.try("ovn-nbctl", "--timeout=5", "--db="+northbound, "--add-duplicate", "ls-add", "leak"))
	}
	plant()
	first := c.state()
	plant()
	seen := changedRows(first, c.state(), "")
	for range 2 {
		id, err := exec.CommandContext(c.Context(), "ovn-nbctl", "--timeout=5", "--db="+northbound, "--bare",
			"--columns=_uuid", "find", "Logical_Switch", "name=leak").Output()
		c.must(err)
		c.must(c.try("ovn-nbctl", "--timeout=5", "--db="+northbound, "ls-del", strings.Fields(string(id))[0]))
	}
	if !slices.ContainsFunc(seen, func(problem error) bool { return strings.Contains(problem.Error(), leak) }) {
		c.Errorf("the second of two switches with the same name was not detected, got only %v", seen)
	}
}

// localnetUplink is the policy that offers the localnet's uplink.
const localnetUplink = `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: localnet-uplink}
spec:
  selector: {cel: 'device.attributes["dra.networking"].ifName == "%[1]s"'}
  exposure:
    deviceNameSuffix: "-localnet"
    allowMultipleAllocations: true
    capacity: {connections: {value: "128", requestPolicy: {default: "1"}}}
    supportedCNIPlugins:
    - {name: ovn-k8s-cni-overlay, exclusive: false, consumePerAllocation: {connections: 1}}
    additionalAttributes: {dra.networking/physicalNetworkName: localnet1}
`

// livesThroughKills runs pods on a localnet with tuning, and on a layer2 network. ovnkube and the driver are killed
// while the pods are running. If a pod terminates while ovnkube is down, it does not have to wait for ovnkube.
func (c *ovnCluster) livesThroughKills() {
	c.network("local", `"topology": "localnet", "physicalNetworkName": "localnet1", "mtu": 1390,
    "subnets": "10.108.0.0/24", "excludeSubnets": "10.108.0.0/30"`, `
  - {name: tune, type: tuning, dependOn: [net], config: {mtu: 1380}}`)
	c.network("overlay", `"topology": "layer2", "subnets": "10.110.0.0/24"`, "")
	c.offers(c.uplink(pf0) + "-localnet")
	before := c.state()
	for _, pod := range []string{"a", "b"} {
		c.create(pod, "local")
	}
	c.address("a", "10.108.0.", "mtu 1380")
	c.reaches("a", c.address("b", "10.108.0.", "mtu 1380"))
	if n := c.vethsOfDatapath(); n != 2 {
		c.Errorf("the datapath has %d veths, want 2", n)
	}

	c.KillDriver()
	c.killOVNKube()
	c.DriverReady()
	c.Remove("a")
	// The Open vSwitch port remains until ovnkube removes it, because ovnkube cannot be notified.
	c.Until("driver that has forgotten the pod", func(ctx context.Context) error {
		claims, err := kubenode.Query(ctx, "claims")
		if err == nil && strings.Contains(claims, `"a-net-`) {
			err = kubenode.ErrStill
		}
		return err
	})
	c.startOVNKube()
	for _, pod := range []string{"c", "d"} {
		c.create(pod, "overlay")
	}
	c.reaches("c", c.address("d", "10.110.0.", "link/ether 0a:58:0a:6e:00:"))
	c.reaches("d", c.address("c", "10.110.0.", "link/ether 0a:58:0a:6e:00:"))
	c.address("b", "10.108.0.", "mtu 1380") // the pod has survived all of this

	c.RemoveAll()
	// OVN keeps the port that connects the bridges for a localnet until the network is deleted.
	c.restored(before, "_ovn_localnet_port")
}

// vethsOfDatapath counts the host ends of the pods' links. Their master is the Open vSwitch datapath instead of their
// bridge.
func (c *ovnCluster) vethsOfDatapath() (n int) {
	c.Helper()
	datapath := c.LinkByName("ovs-system").Attrs().Index
	links, err := netlink.LinkList()
	c.must(err)
	for _, link := range links {
		if link.Type() == "veth" && link.Attrs().MasterIndex == datapath {
			n++
		}
	}
	return n
}

// firstNetwork makes ovnkube also create the pods' first interfaces until the end of this part of the test. It moves
// the configuration for the ovnkube plugin to the runtime's directory, and removes the configuration for the node's own
// network.
func (c *ovnCluster) firstNetwork() {
	c.Helper()
	const folder = "/etc/cni/net.d"
	before := filepath.Join(folder, "10-lab.conflist")
	kept := before + ".kept" // the runtime ignores files with this name
	c.killOVNKube()
	c.must(os.Rename(before, kept))
	c.confDir = folder
	written := filepath.Join(folder, "10-ovn-kubernetes.conf")
	c.Cleanup(func() { c.must(errors.Join(os.Rename(kept, before), os.Remove(written))) })
	c.startOVNKube()
	c.Until("configuration that ovnkube writes", func(context.Context) error {
		_, err := os.Stat(written)
		return err
	})
}

// hasFirstInterfaces runs pods whose first interfaces are provided by OVN-Kubernetes, as on a node where it is
// installed. The pods have an additional interface from a claim, also on an OVN-Kubernetes network. The driver and
// ovnkube are killed while the pods are running. A pod that is deleted while ovnkube is down cannot terminate until
// ovnkube is running again, because of the pod's first interface, not because of the interface from the claim.
func (c *ovnCluster) hasFirstInterfaces() {
	if !c.real {
		c.Skip("needs the real OVN-Kubernetes in EXTRA_CNI_DIR, since the double has no default network")
	}
	c.firstNetwork()
	c.network("first", `"topology": "localnet", "physicalNetworkName": "localnet1", "mtu": 1390,
    "subnets": "10.109.0.0/24", "excludeSubnets": "10.109.0.0/30"`, "")
	c.offers(c.uplink(pf0) + "-localnet")
	before := c.state()
	for _, pod := range []string{"e", "f"} {
		c.create(pod, "first")
	}
	const mac = "link/ether 0a:58:"
	c.reachesBy("e", "eth0", c.addressOf("f", "eth0", "10.244.0.", mac))
	c.reaches("f", c.address("e", "10.109.0.", mac))

	c.KillDriver()
	c.killOVNKube()
	c.DriverReady()
	c.Remove("e")
	c.startOVNKube()
	c.Gone("e")
	c.create("g", "first")
	c.reachesBy("g", "eth0", c.addressOf("f", "eth0", "10.244.0.", mac))
	c.reaches("g", c.address("f", "10.109.0.", mac))

	c.RemoveAll()
	c.restored(before, "_ovn_localnet_port")
}
