package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/certificate"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/webhook"
)

// webhookOptions say whether the webhook is served, and whose certificate it has: somebody else's in a folder, or the
// controller's own in a Secret.
type webhookOptions struct {
	address       string
	certDir       string
	secret        string
	configuration string
	validity      time.Duration
}

// addFlags defines the flags. The defaults serve nobody outside of the pod: the chart sets what its Service needs.
func (o *webhookOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.address, "webhook-bind-address", "127.0.0.1:9684",
		"address of the webhook; a pod with a network of its own needs :9684 for the API server to reach it")
	flags.StringVar(&o.certDir, "webhook-cert-dir", "",
		"folder with tls.crt and tls.key, with which to serve "+webhook.Path+
			" for a ValidatingWebhookConfiguration that somebody else keeps; empty is off")
	flags.StringVar(&o.secret, "webhook-certificate-secret", "",
		"namespace/name of the Secret for the certificate with which to serve "+webhook.Path+
			", which the controller makes and replaces in time; empty is off")
	flags.StringVar(&o.configuration, "webhook-configuration", "dra-network-controller",
		"ValidatingWebhookConfiguration that is told to trust the certificate of --webhook-certificate-secret")
	flags.DurationVar(&o.validity, "webhook-certificate-validity", certificate.DefaultValidity,
		"how long a certificate of --webhook-certificate-secret is valid; the next one is made when a third of it "+
			"is left")
}

// validate refuses contradictions before anything is started: a controller that starts with a webhook that cannot work
// would only show that in its log.
func (o *webhookOptions) validate() error {
	namespace, name, _ := strings.Cut(o.secret, "/")
	switch {
	case o.secret == "":
		return nil
	case o.certDir != "":
		return errors.New("cannot configure the webhook: --webhook-cert-dir and --webhook-certificate-secret are " +
			"both set; set only one")
	case namespace == "" || name == "" || strings.Contains(name, "/"):
		return fmt.Errorf("--webhook-certificate-secret must be namespace/name, not %q", o.secret)
	case o.configuration == "":
		return errors.New("--webhook-configuration must name the ValidatingWebhookConfiguration that is to trust the " +
			"certificate")
	case o.validity < certificate.MinValidity:
		return fmt.Errorf("--webhook-certificate-validity must be at least %s, not %s",
			certificate.MinValidity, o.validity)
	}
	return nil
}

// serve has the manager serve the webhook, in all replicas: questions go to any of them. With a certificate of its own,
// readiness waits for the first look at the Secret and not for a certificate: the certificate is made by the leader,
// and a rollout may wait for this replica to be ready before there is one.
func (o *webhookOptions) serve(m ctrl.Manager) error {
	server := webhook.Options{Address: o.address, CertDir: o.certDir}
	var runnables []manager.Runnable
	var ready healthz.Checker
	switch {
	case o.certDir == "" && o.secret == "":
		return nil
	case o.secret != "":
		source, keeper := o.ownCertificate(m)
		server.GetCertificate, ready = source.GetCertificate, source.Ready
		runnables = append(runnables, source, keeper)
	}
	serving, err := webhook.NewServer(server, m.GetClient(), m.GetAPIReader())
	if err != nil {
		return err
	}
	if ready == nil {
		ready = serving.StartedChecker()
	}
	for _, runnable := range append(runnables, serving) {
		err = errors.Join(err, m.Add(runnable))
	}
	if err := errors.Join(err, m.AddReadyzCheck("webhook", ready)); err != nil {
		return fmt.Errorf("cannot set up the webhook: %w", err)
	}
	return nil
}

// ownCertificate are the reader and the keeper of the certificate that the controller makes for itself. Both read the
// Secret from the API server, not from a cache, which would need the right to list all Secrets.
func (o *webhookOptions) ownCertificate(m ctrl.Manager) (*certificate.Source, *certificate.Keeper) {
	namespace, name, _ := strings.Cut(o.secret, "/")
	secret := types.NamespacedName{Namespace: namespace, Name: name}
	rotation := certificate.Rotation{Validity: o.validity}
	return &certificate.Source{Reader: m.GetAPIReader(), Secret: secret, Period: rotation.Period()},
		&certificate.Keeper{
			Reader: m.GetAPIReader(), Client: m.GetClient(), Secret: secret, Configuration: o.configuration,
			Rotation: rotation, Now: time.Now, Elapsed: elapsed(),
		}
}
