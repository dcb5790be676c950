package webhook

import (
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Path is the URL path for admission requests.
const Path = "/validate"

// Options configures a server's address and certificate. The certificate comes from CertDir or GetCertificate.
type Options struct {
	// Address is the address to listen on, for example 127.0.0.1:9684 or :9684.
	Address string
	// CertDir is the directory that contains the certificate and its key, in tls.crt and tls.key. If the files are
	// replaced, they are reloaded.
	CertDir string
	// GetCertificate is used in the tls.Config if CertDir is empty.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// NewServer returns a server that reads through cluster and live (see [NewHandler]). The server starts listening when
// the manager starts it. The files in CertDir are checked here, because a server that fails later would terminate the
// whole manager.
func NewServer(o Options, cluster, live client.Reader) (webhook.Server, error) {
	host, portText, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the webhook's address: %w; set it to an address like 127.0.0.1:9684 or "+
			":9684", err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("cannot use the webhook's address %s: it must end in a port from 1 to 65535", o.Address)
	}
	if o.CertDir != "" {
		if _, err := tls.LoadX509KeyPair(filepath.Join(o.CertDir, "tls.crt"),
			filepath.Join(o.CertDir, "tls.key")); err != nil {
			return nil, fmt.Errorf("cannot load the webhook's certificate from tls.crt and tls.key in %s: %w",
				o.CertDir, err)
		}
	}
	server := webhook.NewServer(webhook.Options{
		Host: host, Port: int(port), CertDir: o.CertDir,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS12
			// With CertDir, package webhook watches the files, but only if GetCertificate is not set.
			if o.CertDir == "" {
				c.GetCertificate = o.GetCertificate
			}
		}},
	})
	server.Register(Path, newLimited(&admission.Webhook{Handler: NewHandler(cluster, live)}))
	return server, nil
}
