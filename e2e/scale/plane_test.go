package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dra-networking/dra-network-driver/e2e/internal/process"
	"github.com/dra-networking/dra-network-driver/e2e/internal/testcluster"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// plane is a control plane with kwok, which simulates nodes and pods.
type plane struct {
	*lab.Cluster
	client kubernetes.Interface
	config *rest.Config
	clone  string
}

// newPlane starts a control plane with the project's custom resource definitions and with kwok. Both run until the end
// of the test.
func newPlane(t *testing.T) *plane {
	t.Helper()
	clone, err := testcluster.Clone()
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{Cluster: testcluster.ControlPlane(t, *clusterName), clone: clone}
	if p.config, err = p.RESTConfig(); err != nil {
		t.Fatal(err)
	}
	fast := rest.CopyConfig(p.config)
	fast.QPS, fast.ContentType = -1, runtime.ContentTypeProtobuf
	if p.client, err = kubernetes.NewForConfig(fast); err != nil {
		t.Fatal(err)
	}
	p.startKwok(t)
	return p
}

// startKwok runs kwok, which is built by `make kwok`, until the end of the test.
func (p *plane) startKwok(t *testing.T) {
	t.Helper()
	stages, err := filepath.Abs("testdata/stages.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := p.Command(context.Background(), filepath.Join(p.clone, "bin", "kwok"), "--kubeconfig="+p.Kubeconfig(),
		"--manage-all-nodes=true", "--config="+stages)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := p.StartCommand(cmd); err != nil {
		t.Fatalf("cannot run kwok; build it with `make kwok`: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); t.Failed() {
			t.Logf("kwok exited (%v); the end of its log:\n%s", err, log.Bytes()[max(0, log.Len()-4000):])
		}
	})
}

// apply applies YAML.
func (p *plane) apply(t *testing.T, text string) {
	t.Helper()
	cmd := p.Command(t.Context(), "kubectl", "apply", "-f", "-")
	var output strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &output, &output
	if err := p.Run(cmd); err != nil {
		t.Fatalf("cannot apply: %v\n%s\n%s", err, output.String(), text)
	}
}

// Keys in [requests] other than verbs.
const (
	// watching is the number of open watches.
	watching = "watching"
	// dryRun is the number of dry runs, with which drivers determine which fields the API server keeps.
	dryRun = "dry-run"
)

// requests contains the number of completed API requests for ResourceSlices, by verb, and the number of open watches.
type requests map[string]int

var requestLine = regexp.MustCompile(`(?m)^apiserver_(request_total|longrunning_requests)\{([^}]*` +
	`resource="resourceslices"[^}]*verb="(\w+)"[^}]*)\} (\S+)$`)

// requests reads the API server's request counters.
func (p *plane) requests(t *testing.T) requests {
	t.Helper()
	text, err := p.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := requests{}
	for _, match := range requestLine.FindAllSubmatch(text, -1) {
		value, err := strconv.ParseFloat(string(match[4]), 64)
		if err != nil {
			t.Fatal(err)
		}
		verb := string(match[3])
		switch {
		case string(match[1]) == "longrunning_requests":
			verb = watching
		case bytes.Contains(match[2], []byte(`dry_run="All"`)):
			verb = dryRun
		}
		found[verb] += int(value)
	}
	return found
}

// writes returns the number of write requests.
func (r requests) writes() int { return r["POST"] + r["PUT"] + r["PATCH"] + r["DELETE"] + r["APPLY"] }

// since returns the number of requests that were made since an earlier count.
func (r requests) since(earlier requests) requests {
	difference := requests{}
	for verb, count := range r {
		difference[verb] = count - earlier[verb]
	}
	return difference
}

// etcd calls etcd's JSON gateway, and decodes the response.
func (p *plane) etcd(t *testing.T, path, body string, answer any) {
	t.Helper()
	data := p.askEtcd(t, http.MethodPost, path, strings.NewReader(body))
	if err := json.Unmarshal(data, answer); err != nil {
		t.Fatalf("cannot parse etcd's response %q to %s: %v", data, path, err)
	}
}

func (p *plane) askEtcd(t *testing.T, method, path string, body io.Reader) []byte {
	t.Helper()
	transport := &http.Transport{DialContext: p.DialContext, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:2379"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // used only for reading
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("etcd responded to %s with %s: %q (%v)", path, response.Status, data, err)
	}
	return data
}

// stored returns the size, in bytes, of etcd's data in use, excluding old revisions.
func (p *plane) stored(t *testing.T) int64 {
	t.Helper()
	var read struct{ Header struct{ Revision string } }
	p.etcd(t, "/v3/kv/range", `{"key": "YQ==", "count_only": true}`, &read)
	var compacted struct{}
	p.etcd(t, "/v3/kv/compaction", `{"revision": "`+read.Header.Revision+`", "physical": true}`, &compacted)
	metrics := p.askEtcd(t, http.MethodGet, "/metrics", nil)
	match := regexp.MustCompile(`(?m)^etcd_mvcc_db_total_size_in_use_in_bytes (\S+)$`).FindSubmatch(metrics)
	if match == nil {
		t.Fatal("etcd did not report the size of its data")
	}
	size, err := strconv.ParseFloat(string(match[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(size)
}

// forgetMemory restarts components that do not release the memory used for deleted slices, so that the measurement for
// the next layout does not include this memory, and enough memory is available.
func (p *plane) forgetMemory(t *testing.T) {
	t.Helper()
	p.stored(t) // this also removes old revisions from etcd
	for _, component := range []lab.Component{lab.APIServer, lab.ControllerManager} {
		if err := p.Stop(t.Context(), component, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context(), component); err != nil {
			t.Fatal(err)
		}
	}
}

// usage is the resource usage of a component since its start.
type usage struct {
	cpu      time.Duration
	resident int64 // bytes
}

// use reads a component's resource usage from the host's /proc.
func (p *plane) use(t *testing.T, component lab.Component) usage {
	t.Helper()
	found, err := process.One(process.Runs(string(component)),
		process.HasArgument(func(argument string) bool { return strings.Contains(argument, p.RunDir()+"/") }))
	if err != nil {
		t.Fatalf("%s: %v", component, err)
	}
	stat, err := found.Stat()
	if err != nil {
		t.Fatal(err)
	}
	status, err := process.Status(found)
	if err != nil {
		t.Fatal(err)
	}
	return usage{cpu: time.Duration(stat.CPUTime() * float64(time.Second)), resident: int64(status.VmRSS)}
}

// profile starts a CPU profile of kube-scheduler for "go tool pprof", and stores it in the profiles directory.
// Profiling takes profileSeconds, and wait waits until it is complete. If no directory is set, profile does nothing.
func (p *plane) profile(t *testing.T, layout layout) (wait func()) {
	t.Helper()
	if *profiles == "" {
		return func() {}
	}
	config := rest.CopyConfig(p.config)
	// The server uses a self-signed certificate. The request is sent inside the cluster's namespace.
	config.Host, config.CAFile, config.CAData, config.Insecure = schedulerURL, "", nil, true
	client, err := rest.HTTPClientFor(config)
	if err == nil {
		err = os.MkdirAll(*profiles, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	path, done := filepath.Join(*profiles, string(layout)+".pprof"), make(chan error, 1)
	go func() {
		done <- download(t.Context(), client, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", schedulerURL,
			profileSeconds), path)
	}()
	return func() {
		if err := <-done; err != nil {
			t.Errorf("cannot profile kube-scheduler: %v", err)
			return
		}
		t.Logf("to see where the time is spent, run: go tool pprof -top -cum %s", path)
	}
}

// schedulerURL is the default address of kube-scheduler, inside the cluster's namespace.
const (
	schedulerURL   = "https://127.0.0.1:10259"
	profileSeconds = 15
)

// download writes the response from a server to a file.
func download(ctx context.Context, client *http.Client, url, path string) error {
	asked, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(asked)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // used only for reading
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, body, 0o644)
}
