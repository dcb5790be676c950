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

// Path is where the server answers admission requests.
const Path = "/validate"

// Options say where a server answers and with which certificate, which is one of two.
type Options struct {
	// Address is like 127.0.0.1:9684 or :9684.
	Address string
	// CertDir has the certificate and its key in tls.crt and tls.key. When those are replaced, the new ones are served.
	CertDir string
	// GetCertificate is that of tls.Config. It is asked where there is no CertDir.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// NewServer returns a server, which reads through cluster and live as [NewHandler] says. It listens to nothing before
// the manager starts it. The files of CertDir are tried at once: a manager whose server fails later ends as a
// whole.
func NewServer(o Options, cluster, live client.Reader) (webhook.Server, error) {
	host, portText, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, fmt.Errorf("the webhook's address must be like 127.0.0.1:9684 or :9684: %w", err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("the webhook's address %s must end in a port from 1 to 65535", o.Address)
	}
	if o.CertDir != "" {
		if _, err := tls.LoadX509KeyPair(filepath.Join(o.CertDir, "tls.crt"),
			filepath.Join(o.CertDir, "tls.key")); err != nil {
			return nil, fmt.Errorf("the webhook needs a certificate and its key in tls.crt and tls.key of %s: %w",
				o.CertDir, err)
		}
	}
	server := webhook.NewServer(webhook.Options{
		Host: host, Port: int(port), CertDir: o.CertDir,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS12
			// With CertDir, package webhook watches the files itself; it does so only if GetCertificate is not set.
			if o.CertDir == "" {
				c.GetCertificate = o.GetCertificate
			}
		}},
	})
	server.Register(Path, newLimited(&admission.Webhook{Handler: NewHandler(cluster, live)}))
	return server, nil
}
