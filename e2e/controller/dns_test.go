package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// coreDNS is the path of the real CoreDNS, in the version specified in e2e/coredns/go.mod. It takes two minutes to
// compile, so the test is not part of "make test".
var coreDNS = flag.String("coredns", "", "CoreDNS, which make dns-check builds")

const (
	dnsAddress = "127.0.0.1:9653"
	dnsService = "db.default.svc.cluster.local."
)

// corefile is a cluster's CoreDNS configuration without the cache, so that answers reflect the current state in the API
// server.
const corefile = `.:9653 {
    bind 127.0.0.1
    errors
    kubernetes cluster.local {
        kubeconfig %s
        ttl 0
    }
}
`

// The cluster's DNS server resolves the name of a headless Service to the addresses of its pods on the second network.
// It does not return the addresses of pods that are terminating or are not ready.
func TestDNSNamesEndpoints(t *testing.T) {
	if *coreDNS == "" {
		t.Skip("needs CoreDNS: use make dns-check")
	}
	p := newPlane(t)
	p.kubectl(endpointObjects, "apply", "-f", "-")
	p.startController("--service-endpoints")
	p.node("n3") // created late: without a kubelet, a node and its pods stop being ready after a minute
	p.until("the namespace has a ServiceAccount", func() error {
		_, err := p.try("", "get", "serviceaccount", "default")
		return err
	})
	file := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(file, fmt.Appendf(nil, corefile, p.Kubeconfig()), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start("coredns", *coreDNS, "-conf", file)

	p.servicePod("one", "10.60.0.2/24")
	two := p.servicePod("two", "fd00:60::3/120")
	p.resolves("10.60.0.2", "fd00:60::3")
	p.namesPort(5432)
	// Because of the grace period, the API server keeps the pod and waits for a kubelet, which does not exist here.
	p.kubectl("", "delete", "pod", "one", "--wait=false", "--grace-period=60")
	p.resolves("fd00:60::3")
	p.servicePod("three", "10.60.0.4/24")
	p.resolves("10.60.0.4", "fd00:60::3")
	two.Status.Conditions[0].Status = corev1.ConditionFalse
	two.ResourceVersion = ""
	if err := p.api.Status().Update(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	p.resolves("10.60.0.4")
	p.kubectl("", "annotate", "service", "db", "networking.dra.io/endpoints-topology-")
	p.resolves()
}

// resolver returns a resolver that queries CoreDNS in the cluster's network namespace.
func (p *plane) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return p.DialContext(ctx, network, dnsAddress)
	}}
}

// resolves waits until the Service's name resolves to exactly the given addresses.
func (p *plane) resolves(want ...string) {
	p.t.Helper()
	p.until(fmt.Sprintf("%s has the addresses %q", dnsService, want), func() error {
		ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
		defer cancel()
		have, err := p.resolver().LookupHost(ctx, dnsService)
		if notFound := (&net.DNSError{}); errors.As(err, &notFound) && notFound.IsNotFound {
			err = nil // expected if there are no addresses
		}
		slices.Sort(have)
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("the name resolves to %q", have)
		}
		return err
	})
}

// namesPort checks that the Service's port can be looked up by name.
func (p *plane) namesPort(want uint16) {
	p.t.Helper()
	_, records, err := p.resolver().LookupSRV(p.t.Context(), "sql", "tcp", dnsService)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(records) != 2 {
		p.t.Errorf("the name has %d SRV records, want 2", len(records))
	}
	for _, record := range records {
		if record.Port != want {
			p.t.Errorf("%s has port %d, want %d", record.Target, record.Port, want)
		}
	}
}
