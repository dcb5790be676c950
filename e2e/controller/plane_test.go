package controller

import (
	"context"
	"errors"
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

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/e2e/internal/testcluster"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// patience is the time limit for every wait.
const patience = 3 * time.Minute

// metricsAddress is the address at which a controller serves its metrics in the cluster's network namespace.
const metricsAddress = "127.0.0.1:9683"

// plane is a control plane with the project's definitions and admission policies.
type plane struct {
	*lab.Cluster
	t     *testing.T
	api   client.Client
	clone string
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	clone, err := testcluster.Clone()
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{Cluster: testcluster.ControlPlane(t, "controller"), t: t, clone: clone}
	p.kubectl("", "apply", "-f", filepath.Join(clone, "deploy", "claims.yaml"))
	p.api = p.newClient()
	return p
}

// forTest returns the plane for a subtest, so that failures are attributed to the subtest.
func (p *plane) forTest(t *testing.T) *plane {
	sub := *p
	sub.t = t
	return &sub
}

func (p *plane) newClient() client.Client {
	p.t.Helper()
	config, err := p.RESTConfig()
	if err != nil {
		p.t.Fatal(err)
	}
	config.QPS = -1 // no limit: only this test uses the API server
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		policyapi.AddToScheme(scheme)); err != nil {
		p.t.Fatal(err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		p.t.Fatal(err)
	}
	return api
}

// kubectl runs kubectl with the given standard input, and returns its output.
func (p *plane) kubectl(stdin string, args ...string) string {
	p.t.Helper()
	out, err := p.try(stdin, args...)
	if err != nil {
		p.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (p *plane) try(stdin string, args ...string) (string, error) {
	cmd := p.Command(p.t.Context(), append([]string{"kubectl"}, args...)...)
	var out strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	err := p.Run(cmd)
	return out.String(), err
}

// until calls try until it succeeds.
func (p *plane) until(what string, try func() error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("%s: %v", what, err)
		case <-ticker.C:
		}
	}
}

// startController starts a controller with additional arguments, and returns a function that stops it.
func (p *plane) startController(args ...string) (stop func()) {
	p.t.Helper()
	return p.start("controller", append([]string{filepath.Join(p.clone, "bin", "dra-network-controller"),
		"--kubeconfig=" + p.Kubeconfig(), "--metrics-bind-address=" + metricsAddress}, args...)...)
}

// start starts a program in the cluster's namespaces, and returns a function that stops it. The program's output is
// logged if the test or the program fails.
func (p *plane) start(name string, command ...string) (stop func()) {
	p.t.Helper()
	log, err := os.CreateTemp(p.t.TempDir(), name+"-*.log")
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := p.Command(context.Background(), command...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := p.StartCommand(cmd); err != nil {
		p.t.Fatalf("cannot run %s, which `make build` or the make target of a test builds: %v", command[0], err)
	}
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait(), log.Close())
		if text, readErr := os.ReadFile(log.Name()); err != nil || p.t.Failed() {
			p.t.Logf("output of %s:\n%s", name, text)
			err = errors.Join(err, readErr)
		}
		if err != nil {
			p.t.Errorf("%s: %v", name, err)
		}
	}
	p.t.Cleanup(stop)
	return stop
}

// counts contains counters of a controller's activity.
type counts struct {
	reconciled int            // topologies
	writes     map[string]int // requests by method
	resident   int            // bytes of memory
	cpu        time.Duration
}

// all returns the total number of writes.
func (c counts) all() int {
	n := 0
	for _, count := range c.writes {
		n += count
	}
	return n
}

// counts reads the counters from the running controller's metrics.
func (p *plane) counts() (counts, error) {
	transport := &http.Transport{DialContext: p.DialContext, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+metricsAddress+"/metrics", nil)
	if err != nil {
		return counts{}, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return counts{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return counts{}, err
	}
	if response.StatusCode != http.StatusOK {
		return counts{}, fmt.Errorf("metrics: %s", response.Status)
	}
	found := counts{writes: map[string]int{}}
	for _, match := range regexp.MustCompile(`(?m)^process_(resident_memory_bytes|cpu_seconds_total) (\S+)$`).
		FindAllStringSubmatch(string(text), -1) {
		value, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			return counts{}, err
		}
		if match[1] == "cpu_seconds_total" {
			found.cpu = time.Duration(value * float64(time.Second))
			continue
		}
		found.resident = int(value)
	}
	for _, match := range regexp.MustCompile(
		`(?m)^(rest_client_requests_total|controller_runtime_reconcile_total)\{(.*)\} (\S+)$`,
	).FindAllStringSubmatch(string(text), -1) {
		value, err := strconv.ParseFloat(match[3], 64)
		if err != nil {
			return counts{}, err
		}
		method := regexp.MustCompile(`method="(\w+)"`).FindStringSubmatch(match[2])
		switch {
		case strings.Contains(match[2], `controller="networktopology"`):
			found.reconciled += int(value)
		case method != nil && method[1] != http.MethodGet:
			found.writes[method[1]] += int(value)
		}
	}
	return found, nil
}

// settled waits until the controller has reconciled the given number of topologies, and returns its counters.
func (p *plane) settled(reconciled int) counts {
	p.t.Helper()
	var now counts
	p.until(fmt.Sprintf("%d topologies are looked at", reconciled), func() (err error) {
		if now, err = p.counts(); err == nil && now.reconciled < reconciled {
			err = fmt.Errorf("the controller has reconciled %d so far", now.reconciled)
		}
		return err
	})
	return now
}

func (p *plane) classes() []resourceapi.DeviceClass {
	p.t.Helper()
	var classes resourceapi.DeviceClassList
	if err := p.api.List(p.t.Context(), &classes); err != nil {
		p.t.Fatal(err)
	}
	return classes.Items
}
