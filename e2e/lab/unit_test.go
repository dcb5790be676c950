package lab

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/e2e/internal/node"
)

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func testOptions(t *testing.T, o Options) Options {
	t.Helper()
	o.CacheDir, o.Clone = t.TempDir(), t.TempDir()
	out, err := o.withDefaults()
	return must(t, out, err)
}

func TestOptionsDefaults(t *testing.T) {
	o := testOptions(t, Options{})
	if o.Name != "default" || o.NodeName != "e2e-node" || o.SyncFrequency != 5*time.Second {
		t.Errorf("unexpected defaults: %+v", o)
	}
	if want := filepath.Join(o.CacheDir, "run", "default"); o.RunDir != want {
		t.Errorf("the run directory is %s, want %s", o.RunDir, want)
	}
	for _, bad := range []Options{
		{Name: "../x"}, {Name: "A"}, {Name: "-a"}, {Name: strings.Repeat("a", 41)}, {NodeName: "a b"},
		{Images: []string{"/does/not/exist.tar"}}, {ExtraCNIDirs: []string{"/does/not/exist"}}, {Kubernetes: "1.36"},
		{Kubernetes: "1.36", NodeElsewhere: true}, {ControlPlaneOnly: true, NodeElsewhere: true},
	} {
		bad.CacheDir, bad.Clone = t.TempDir(), t.TempDir()
		if _, err := bad.withDefaults(); err == nil {
			t.Errorf("invalid options were accepted: %+v", bad)
		}
	}
}

func TestExtraCNIFromEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("EXTRA_CNI_DIR", dir)
	ownDir := t.TempDir()
	for want, dirs := range map[string][]string{dir: nil, ownDir: {ownDir}, dir + " " + ownDir: ExtraCNIDirs(ownDir)} {
		if o := testOptions(t, Options{ExtraCNIDirs: dirs}); strings.Join(o.ExtraCNIDirs, " ") != want {
			t.Errorf("the plugin directories are %q, want %q", o.ExtraCNIDirs, want)
		}
	}
}

func TestKubeletConfig(t *testing.T) {
	o := testOptions(t, Options{FeatureGates: map[string]bool{"B": true, "A": false}, SyncFrequency: 7 * time.Second})
	data, err := kubeletConfig(o, "group")
	var got struct {
		CgroupRoot    string
		SyncFrequency string
		FailCgroupV1  *bool
		FeatureGates  map[string]bool
		StaticPodPath string
	}
	if err := yaml.Unmarshal(must(t, data, err), &got); err != nil {
		t.Fatal(err)
	}
	if got.CgroupRoot != "/group" || got.SyncFrequency != "7s" || got.FailCgroupV1 == nil || *got.FailCgroupV1 {
		t.Errorf("unexpected configuration:\n%s", data)
	}
	if !got.FeatureGates["B"] || got.FeatureGates["A"] || got.StaticPodPath != filepath.Join(o.RunDir, "manifests") {
		t.Errorf("unexpected configuration:\n%s", data)
	}
}

func TestCommandLines(t *testing.T) {
	b := Binaries{Dir: "/bin-dir"}
	plain := testOptions(t, Options{})
	gated := testOptions(t, Options{
		FeatureGates: map[string]bool{"B": true, "A": false}, NodeLabels: map[string]string{"x": "1"},
		RuntimeConfig: map[string]string{"resource.k8s.io/v1beta2": "true"},
	})
	for _, c := range Components() {
		args, err := commandLine(c, plain, b)
		if must(t, args, err)[0] != "/bin-dir/"+string(c) {
			t.Errorf("component %s runs unexpected program %s", c, args[0])
		}
		if line := strings.Join(args, " "); strings.Contains(line, "feature-gates") ||
			strings.Contains(line, "runtime-config") {
			t.Errorf("%s does not run with the expected defaults: %s", c, line)
		}
	}
	for _, c := range []Component{APIServer, ControllerManager, Scheduler} {
		args, err := commandLine(c, gated, b)
		if !slices.Contains(must(t, args, err), "--feature-gates=A=false,B=true") {
			t.Errorf("%s lacks the feature gates: %v", c, args)
		}
	}
	args, err := commandLine(Kubelet, gated, b)
	if !slices.Contains(must(t, args, err), "--node-labels=x=1") {
		t.Errorf("kubelet lacks the label: %v", args)
	}
	for c, want := range map[Component]string{
		APIServer:         "--disable-admission-plugins=TaintNodesByCondition",
		ControllerManager: "--controllers=*,-node-lifecycle-controller",
	} {
		lone, err := commandLine(c, testOptions(t, Options{ControlPlaneOnly: true}), b)
		must(t, lone, err)
		whole, err := commandLine(c, plain, b)
		if !slices.Contains(lone, want) || slices.Contains(must(t, whole, err), want) {
			t.Errorf("args of %s do not differ: %v in a lone control plane, %v in a cluster", c, lone, whole)
		}
	}
	if _, err := commandLine("other", plain, b); err == nil {
		t.Error("an unknown component was accepted")
	}
}

func TestPKI(t *testing.T) {
	dir := t.TempDir()
	if _, err := writePKI(dir, "worker", apiURL, []net.IP{net.ParseIP(apiAddress)}); err != nil {
		t.Fatal(err)
	}
	ca := x509.NewCertPool()
	if !ca.AppendCertsFromPEM(read(t, dir, "ca.crt")) {
		t.Fatal("ca.crt contains no certificate")
	}
	for _, id := range identities("worker") {
		block, _ := pem.Decode(read(t, dir, id.file+".crt"))
		cert, err := x509.ParseCertificate(block.Bytes)
		opts := x509.VerifyOptions{Roots: ca, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		if id.dns != nil {
			opts.KeyUsages, opts.DNSName = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, id.dns[0]
		}
		if _, err := must(t, cert, err).Verify(opts); err != nil {
			t.Errorf("%s: %v", id.file, err)
		}
		if id.kubeconfig {
			config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, id.file+".kubeconfig"))
			if must(t, config, err).Host != apiURL {
				t.Errorf("%s refers to unexpected server %s", id.file, config.Host)
			}
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "ca.key")); must(t, info, err).Mode().Perm() != 0o600 {
		t.Error("other users can read the key")
	}
}

func TestPKIOfANode(t *testing.T) {
	plane, dir := t.TempDir(), t.TempDir()
	keys, err := writePKI(plane, "worker", apiURL, nil)
	must(t, keys, err)
	address := net.ParseIP(memberAddress(3))
	if err := keys.writeMember(dir, "worker-3", apiURL, []net.IP{address}); err != nil {
		t.Fatal(err)
	}
	ca := x509.NewCertPool()
	ca.AppendCertsFromPEM(read(t, plane, "ca.crt"))
	block, _ := pem.Decode(read(t, dir, "kubelet-server.crt"))
	cert, err := x509.ParseCertificate(block.Bytes)
	for _, name := range []string{"worker-3", address.String()} {
		if _, err := must(t, cert, err).Verify(x509.VerifyOptions{Roots: ca, DNSName: name}); err != nil {
			t.Error(err)
		}
	}
	if !bytes.Equal(read(t, dir, "ca.crt"), read(t, plane, "ca.crt")) || exists(filepath.Join(dir, "ca.key")) {
		t.Error("the node has a different certificate authority, or has the authority's key")
	}
}

// TestNodesOfACluster checks that nodes differ in all values that must be unique.
func TestNodesOfACluster(t *testing.T) {
	for _, o := range []Options{
		{Nodes: -1}, {Nodes: maxNodes + 1}, {Links: maxNodeLinks + 1}, {Nodes: 2, ControlPlaneOnly: true},
		{Nodes: 2, NodeElsewhere: true},
	} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	o := testOptions(t, Options{Nodes: maxNodes, NodeName: "worker", Links: 3})
	c := newCluster(o, state{RunDir: o.RunDir, Cgroup: "group", Nodes: o.nodeNames(), Links: o.Links})
	seen := map[string]bool{}
	unique := func(what string) {
		t.Helper()
		if seen[what] {
			t.Errorf("two nodes share %s", what)
		}
		seen[what] = true
	}
	for _, n := range c.Nodes() {
		network, err := n.opts.clusterNetwork()
		unique(must(t, network, err))
		unique(n.Address())
		unique(n.RunDir())
		unique(n.state.Cgroup)
		before := map[string]cable{}
		for boot := range 12 {
			for i, cable := range n.cables(boot) {
				if boot == 0 {
					unique(cable.port)
					unique(cable.address.String())
				}
				if old := before[cable.link]; old.port != "" && (old.index == cable.index || i > 0 &&
					old.index%10 == cable.index%10 || !bytes.Equal(old.address, cable.address)) {
					t.Errorf("boot %d changed %+v to %+v", boot, old, cable)
				}
				before[cable.link] = cable
			}
		}
	}
}

func read(t *testing.T, elem ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	return must(t, data, err)
}

func TestToolsFollowGoMod(t *testing.T) {
	dir := moduleOf(t, "")
	tools, err := readTools(t.Context(), dir)
	must(t, tools, err)
	if len(tools.tools) < 20 || !strings.Contains(strings.Join(tools.flags, " "), "version.gitVersion=v1.") {
		t.Errorf("unexpected tools %v or build flags %q", tools.tools, tools.flags)
	}
	var plugins []string
	for _, tool := range tools.tools {
		plugins = append(plugins, pluginOf(tool))
	}
	for _, want := range []string{"host-local", "loopback", "whereabouts"} {
		if !slices.Contains(plugins, want) {
			t.Errorf("the tools do not contain the CNI plugin %s: %q", want, plugins)
		}
	}
	again, err := readTools(t.Context(), dir)
	if must(t, again, err).hash != tools.hash {
		t.Error("the same input resulted in different hashes")
	}
	for name, change := range map[string]func(*toolchain) string{
		"Go":    func(*toolchain) string { return "go9.9" },
		"flags": func(c *toolchain) string { c.flags = append(slices.Clone(c.flags), "-race"); return "go1" },
	} {
		base, err := tools.fingerprint("go1")
		changed := tools
		other, err2 := changed.fingerprint(change(&changed))
		if must(t, base, errors.Join(err, err2)) == other {
			t.Errorf("a different %s resulted in the same hash", name)
		}
	}
	if _, err := buildFlags(goMod{}); err == nil {
		t.Error("a go.mod without Kubernetes was accepted")
	}
}

func moduleOf(t *testing.T, version string) string {
	t.Helper()
	clone, err := findClone()
	dir, err2 := toolsDir(must(t, clone, err), version)
	return must(t, dir, err2)
}

func TestToolsOfAnotherVersion(t *testing.T) {
	tools, err := readTools(t.Context(), moduleOf(t, "1.36"))
	must(t, tools, err)
	flags := strings.Join(tools.flags, " ")
	if !strings.Contains(flags, "gitVersion=v1.36.") || !strings.Contains(flags, "gitMinor=36") {
		t.Errorf("got build flags %q, want version 1.36", flags)
	}
	for _, c := range []Component{APIServer, ControllerManager, Scheduler, "kubectl"} {
		if !slices.Contains(tools.tools, "k8s.io/kubernetes/cmd/"+string(c)) {
			t.Errorf("%s is missing from %v", c, tools.tools)
		}
	}
	for _, unknown := range []string{"1.2", "../1.36", "*"} {
		if dir, err := toolsDir(filepath.Dir(filepath.Dir(tools.dir)), unknown); err == nil ||
			!strings.Contains(err.Error(), "1.36") {
			t.Errorf("toolsDir of unknown version %q returned %q (%v)", unknown, dir, err)
		}
	}
}

func TestBuildLog(t *testing.T) {
	l := &buildLog{}
	for _, s := range []string{"a/b\nc/", "d\n# a/b\nx.go:1:2: ", "wrong\n", "go: downloading x v1\n"} {
		if _, err := l.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if l.packages() != 2 || !strings.Contains(l.tail(), "x.go:1:2: wrong") {
		t.Errorf("got %d packages and tail %q, want 2 and the error", l.packages(), l.tail())
	}
}

func TestProcessIdentity(t *testing.T) {
	me, err := identify(os.Getpid())
	if !must(t, me, err).alive() {
		t.Error("this process was not reported as alive")
	}
	other := me
	other.Start++
	if other.alive() {
		t.Error("a process with a different start time was treated as the same process")
	}
	if err := other.kill(t.Context()); err != nil { // must not kill this process
		t.Error(err)
	}
}

func TestLockExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path)
	must(t, unlock, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lockFile(ctx, path); err == nil {
		t.Error("two processes held the lock")
	}
	unlock()
	unlock, err = lockFile(t.Context(), path)
	must(t, unlock, err)()
}

// A process that waits for another process's build reports that it is waiting.
func TestWaitForALockIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path)
	must(t, unlock, err)
	said, text := io.Pipe()
	result := make(chan error, 1)
	go func() {
		release, err := lockWithProgress(t.Context(), path, newProgress(text))
		if err == nil {
			release()
		}
		result <- err
	}()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.Contains(line, "waiting for another process") || !strings.Contains(line, path) {
		t.Errorf("unexpected progress %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, said) }() // ends when the pipe is closed
	unlock()
	if err := <-result; err != nil {
		t.Error(err)
	}
	_ = text.Close()
}

func TestForeignRunDirIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context(), Options{Name: "x", RunDir: dir}); err == nil {
		t.Error("a directory with foreign files was accepted")
	}
	found, err := Remove(t.Context(), Options{Name: "x", CacheDir: t.TempDir(), RunDir: dir})
	if must(t, found, err) || !exists(filepath.Join(dir, "precious")) {
		t.Error("a foreign directory was removed")
	}
}

func TestOpenTellsThatNothingRuns(t *testing.T) {
	if _, err := Open(Options{CacheDir: t.TempDir()}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("opening a cluster that is not running returned %v, want ErrNotRunning", err)
	}
}

// Everything that another machine needs to act as the node, or as the whole cluster, is in directories that are visible
// to that machine.
func TestJoining(t *testing.T) {
	for name, test := range map[string]struct {
		options    Options
		components []Component
		uplink     string
		address    string // the kubelet's address
	}{
		"node": {Options{NodeElsewhere: true}, []Component{Containerd, Kubelet}, NetworkElsewhere().Link,
			NetworkElsewhere().Machine},
		"whole": {Options{allElsewhere: true}, Components(), "", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			o, j := joiningOf(t, test.options)
			var have []Component
			for _, c := range j.Components {
				have = append(have, Component(c.Name))
				if c.Health == "" || !strings.HasPrefix(c.Argv[0], "/programs/") {
					t.Errorf("%s has unexpected command %q or health check %q", c.Name, c.Argv, c.Health)
				}
				if imports := c.Name == string(Containerd); imports && len(c.Images) != 3 || !imports &&
					len(c.Images) > 0 {
					t.Errorf("%s has the images %q, want the two of every cluster and the given one for containerd",
						c.Name, c.Images)
				}
				for _, path := range c.Images {
					if !strings.HasPrefix(path, o.RunDir) || !exists(path) {
						t.Errorf("%s does not exist in the run directory", path)
					}
				}
			}
			if diff := cmp.Diff(test.components, have); diff != "" {
				t.Errorf("components (-want +have):\n%s", diff)
			}
			if j.Uplink != test.uplink || !strings.HasPrefix(j.Import[0], "/programs/") {
				t.Errorf("the uplink is %q, want %q; images are imported by %q", j.Uplink, test.uplink, j.Import)
			}
			config, err := kubeletConfig(o, "group")
			if err != nil || !strings.Contains(string(config), "address: "+test.address) {
				t.Errorf("the kubelet's configuration lacks address %s: %v\n%s", test.address, err, config)
			}
			if !strings.Contains(containerdConfig("runc", "", o.NRITimeout), `plugin_request_timeout = "1m0s"`) {
				t.Error("containerd's configuration does not contain the NRI timeout")
			}
			if data := o.etcdData(); strings.HasPrefix(data, o.RunDir) == o.allElsewhere {
				t.Errorf("etcd's data is in %s, but files in a shared directory cannot be mapped into memory", data)
			}
		})
	}
}

// joiningOf returns the Joining settings for a machine that joins a cluster with one additional image.
func joiningOf(t *testing.T, o Options) (Options, *node.Joining) {
	t.Helper()
	if _, err := StaticBusybox(); err != nil {
		t.Skip(err)
	}
	source := filepath.Join(t.TempDir(), "driver.tar")
	o.Images, o.NRITimeout = []string{source}, time.Minute
	if err := os.WriteFile(source, []byte("image"), 0o600); err != nil {
		t.Fatal(err)
	}
	o = testOptions(t, o)
	c := newCluster(o, state{RunDir: o.RunDir, Binaries: Binaries{Dir: "/programs"}, Cgroup: "group"})
	for _, dir := range []string{imageDir, helperDir} {
		if err := os.MkdirAll(filepath.Join(o.RunDir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(o.RunDir, helperDir, "pause"), []byte("program"), 0o700); err != nil {
		t.Fatal(err)
	}
	j, err := c.joining()
	if err != nil {
		t.Fatal(err)
	}
	return o, j
}

func TestPackRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "letter"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]Options{
		"holds something else": {RunDir: full}, "NodeElsewhere": {NodeElsewhere: true},
		"ControlPlaneOnly": {ControlPlaneOnly: true}, "good name": {Name: "NO"},
	} {
		o.CacheDir = t.TempDir()
		if _, err := Pack(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want error that contains %q, got %v", want, err)
		}
	}
}
