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

// NewServer returns a server that answers on an address with the certificate and key in tls.crt and tls.key of the folder,
// and with others when those are replaced.
func NewServer(address, certDir string, schemas client.Reader) (webhook.Server, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the webhook's address must be like 127.0.0.1:9684 or :9684: %w", err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("the webhook's address %s must end in a port from 1 to 65535", address)
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(certDir, "tls.crt"), filepath.Join(certDir, "tls.key")); err != nil {
		return nil, fmt.Errorf("the webhook needs a certificate and its key in tls.crt and tls.key of %s: %w", certDir, err)
	}
	server := webhook.NewServer(webhook.Options{
		Host: host, Port: int(port), CertDir: certDir,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }},
	})
	server.Register(Path, &admission.Webhook{Handler: NewHandler(schemas)})
	return server, nil
}
