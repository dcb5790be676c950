package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// validity is the validity period for certificates. No cluster exists that long.
const validity = 30 * 24 * time.Hour

// authority is the cluster's certificate authority. Its key is in the run directory, like the keys for all components.
// Only root can read the directory. Serial numbers must be unique (RFC 5280, 4.1.2.2).
type authority struct {
	dir    string
	cert   *x509.Certificate
	pem    []byte
	key    *ecdsa.PrivateKey
	serial int64
}

// identity describes one of the cluster's certificates. The API server interprets the common name as the user and the
// organizations as the groups (x509 authentication).
type identity struct {
	file string
	name string
	orgs []string
	// dns lists a server's host names; nil for a client.
	dns []string
	// kubeconfig is true if the certificate needs a kubeconfig.
	kubeconfig bool
}

// identities lists a cluster's certificates. Kubernetes defines the groups: system:masters may do anything, regardless
// of RBAC, and the group system:nodes together with the user system:node:NAME identifies a kubelet to the Node
// authorizer and the NodeRestriction admission plugin.
func identities(node string) []identity {
	return []identity{
		{file: "apiserver", name: "kube-apiserver", dns: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		}},
		{file: "kubelet-server", name: "system:node:" + node, orgs: []string{"system:nodes"},
			dns: []string{node, "localhost"}},
		{file: "apiserver-kubelet", name: "kube-apiserver-kubelet-client", orgs: []string{"system:masters"}},
		{file: "admin", name: "kubernetes-admin", orgs: []string{"system:masters"}, kubeconfig: true},
		{file: "controller-manager", name: "system:kube-controller-manager", kubeconfig: true},
		{file: "scheduler", name: "system:kube-scheduler", kubeconfig: true},
		{file: "kubelet", name: "system:node:" + node, orgs: []string{"system:nodes"}, kubeconfig: true},
	}
}

// memberIdentities lists the certificates for a node in a multi-node cluster. The administrator's certificate is for
// kubectl on the node.
func memberIdentities(node string) []identity {
	var mine []identity
	for _, id := range identities(node) {
		if slices.Contains([]string{"kubelet-server", "admin", "kubelet"}, id.file) {
			mine = append(mine, id)
		}
	}
	return mine
}

// writePKI writes all of a cluster's keys, certificates and kubeconfigs to dir.
func writePKI(dir, node, server string, ips []net.IP) (*authority, error) {
	a, err := newAuthority(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot make the cluster's certificate authority: %w", err)
	}
	if err := a.issueAll(identities(node), server, ips); err != nil {
		return nil, err
	}
	return a, a.writeServiceAccounts()
}

// writeMember writes to dir the keys for a node in a multi-node cluster. It issues the certificates with a copy of the
// authority, and then stores the copy's last serial number in the original, so that the next node's certificates have
// different serial numbers.
func (a *authority) writeMember(dir, node, server string, ips []net.IP) error {
	member := *a
	member.dir = dir
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), a.pem, 0o600); err != nil {
		return err
	}
	err := member.issueAll(memberIdentities(node), server, ips)
	a.serial = member.serial
	return err
}

func (a *authority) issueAll(all []identity, server string, ips []net.IP) error {
	for _, id := range all {
		if err := a.issue(id, server, ips); err != nil {
			return fmt.Errorf("cannot make the certificate %s: %w", id.file, err)
		}
	}
	return nil
}

// writeServiceAccounts writes the key pair for service account tokens. The controller manager signs with sa.key, and
// the API server verifies with sa.pub.
func (a *authority) writeServiceAccounts() error {
	sa, _, err := a.newKey("sa")
	if err != nil {
		return fmt.Errorf("cannot make the service account key: %w", err)
	}
	pub, err := x509.MarshalPKIXPublicKey(sa.Public())
	if err != nil {
		return fmt.Errorf("cannot encode the service account key: %w", err)
	}
	_, err = a.write("sa.pub", "PUBLIC KEY", pub)
	return err
}

// newAuthority creates the certificate authority for one cluster and writes it to files. Each cluster has its own
// authority, so a leftover kubeconfig does not work with another cluster.
func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	var err error
	if a.key, _, err = a.newKey("ca"); err != nil {
		return nil, err
	}
	t := a.template(identity{name: "lab-ca"})
	t.IsCA = true
	t.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.pem, err = a.write("ca.crt", "CERTIFICATE", der)
	return a, err
}

// template returns the fields that all certificates have in common. Each call increments the serial number, because
// X.509 requires serial numbers to be unique (RFC 5280, 4.1.2.2).
func (a *authority) template(id identity) *x509.Certificate {
	a.serial++
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          big.NewInt(a.serial),
		Subject:               pkix.Name{CommonName: id.name, Organization: id.orgs},
		NotBefore:             now.Add(-time.Hour), // tolerates clock differences
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
}

// issue creates a certificate and its key. A certificate with DNS names is for a server, and any other certificate is
// for a client. No certificate serves both purposes.
func (a *authority) issue(id identity, server string, ips []net.IP) error {
	key, keyPEM, err := a.newKey(id.file)
	if err != nil {
		return err
	}
	t := a.template(id)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if id.dns != nil {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		t.DNSNames, t.IPAddresses = id.dns, ips
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	certPEM, err := a.write(id.file+".crt", "CERTIFICATE", der)
	if err != nil || !id.kubeconfig {
		return err
	}
	return clientcmd.WriteToFile(a.kubeconfig(id, server, certPEM, keyPEM), filepath.Join(a.dir, id.file+".kubeconfig"))
}

// kubeconfig returns a kubeconfig with embedded keys and certificates, so that it works in every mount namespace.
func (a *authority) kubeconfig(id identity, server string, cert, key []byte) clientcmdapi.Config {
	const cluster = "lab"
	c := *clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.pem}
	c.AuthInfos[id.file] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	c.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: id.file}
	c.CurrentContext = cluster
	return c
}

// newKey creates a key on the P-256 curve. Creating an RSA key may take seconds, and a cluster has a dozen keys.
func (a *authority) newKey(name string) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	data, err := a.write(name+".key", "EC PRIVATE KEY", der)
	return key, data, err
}

func (a *authority) write(name, kind string, der []byte) ([]byte, error) {
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return data, os.WriteFile(filepath.Join(a.dir, name), data, 0o600)
}
