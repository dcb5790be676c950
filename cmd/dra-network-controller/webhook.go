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

// webhookOptions configures whether the webhook is served and where its certificate comes from: either a directory
// managed by the user or a Secret managed by the controller.
type webhookOptions struct {
	address       string
	certDir       string
	secret        string
	configuration string
	validity      time.Duration
}

// addFlags defines the flags. By default, the webhook only listens on localhost; the chart sets the address that its
// Service needs.
func (o *webhookOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.address, "webhook-bind-address", "127.0.0.1:9684",
		"address of the webhook; a pod without host network needs :9684 so that the API server can reach it")
	flags.StringVar(&o.certDir, "webhook-cert-dir", "", "directory with tls.crt and tls.key for serving "+webhook.Path+
		"; you manage the ValidatingWebhookConfiguration; empty disables it")
	flags.StringVar(&o.secret, "webhook-certificate-secret", "",
		"namespace/name of the Secret with the certificate for serving "+webhook.Path+
			", which the controller creates and rotates; empty disables it")
	flags.StringVar(&o.configuration, "webhook-configuration", "dra-network-controller",
		"ValidatingWebhookConfiguration whose caBundle is set for --webhook-certificate-secret")
	flags.DurationVar(&o.validity, "webhook-certificate-validity", certificate.DefaultValidity,
		"validity of the certificate of --webhook-certificate-secret; it is replaced when a third of the validity is "+
			"left")
}

// validate rejects contradictory options before anything starts; otherwise, only the log would show that the webhook
// cannot work.
func (o *webhookOptions) validate() error {
	namespace, name, _ := strings.Cut(o.secret, "/")
	switch {
	case o.secret == "":
		return nil
	case o.certDir != "":
		return errors.New("cannot configure the webhook: --webhook-cert-dir and --webhook-certificate-secret are " +
			"both set; set only one")
	case namespace == "" || name == "" || strings.Contains(name, "/"):
		return fmt.Errorf("cannot configure the webhook: --webhook-certificate-secret must be namespace/name, not %q",
			o.secret)
	case o.configuration == "":
		return errors.New("cannot configure the webhook: --webhook-configuration is empty; set it to the name of the " +
			"ValidatingWebhookConfiguration")
	case o.validity < certificate.MinValidity:
		return fmt.Errorf("cannot configure the webhook: --webhook-certificate-validity must be at least %s, not %s",
			certificate.MinValidity, o.validity)
	}
	return nil
}

// serve adds the webhook to the manager in all replicas, because API servers may connect to any of them. If the
// controller manages the certificate, the replica becomes ready after it has read the Secret once, even if there is no
// certificate yet: the leader creates the certificate, and a rollout may wait for this replica to become ready before
// that happens.
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

// ownCertificate returns the source and the keeper for the controller-managed certificate. Both read the Secret from
// the API server, because a cache would require permission to list all Secrets.
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
