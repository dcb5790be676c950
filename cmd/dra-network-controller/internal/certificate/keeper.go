package certificate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldOwner is the field manager that owns caBundle in the webhook's configuration.
const FieldOwner = "dra-network-controller-webhook"

// Keeper maintains a valid certificate in the Secret, and its authority in the webhook's configuration. The manager
// runs it in the leading replica. It is harmless if two keepers run concurrently: a write is rejected if the object has
// changed since it was read.
type Keeper struct {
	// Reader reads from the API server, because a cache would not be worth the memory here.
	Reader client.Reader
	// Client writes to the API server.
	Client client.Client
	// Secret identifies the Secret, which must exist. The keeper owns it and replaces all of its data.
	Secret types.NamespacedName
	// Configuration is the name of the ValidatingWebhookConfiguration. The keeper reads the host name of each of its
	// webhooks and writes caBundle.
	Configuration string
	// Rotation decides when certificates are replaced.
	Rotation Rotation
	// Now returns the time that is used to check the validity of certificates.
	Now func() time.Time
	// Elapsed returns this process's monotonic time. Waiting is based on this time, because the replicas' wall clocks
	// differ and may be adjusted.
	Elapsed func() time.Duration

	// trusted is the authority that this process has observed in the configuration since the time seen.
	trusted []byte
	seen    time.Duration
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Keeper) NeedLeaderElection() bool { return true }

// Start maintains the certificate until the context is done. It never returns an error, because that would stop the
// manager and its controllers, which do not need the webhook.
func (k *Keeper) Start(ctx context.Context) error {
	log := newSparing(ctrl.Log.WithName("webhook-certificate"),
		"cannot maintain the webhook's certificate; until this is fixed, errors are reported only in conditions")
	for failures := 0; ; {
		err := k.keep(ctx)
		failures++
		if err == nil {
			failures = 0
		}
		if !apierrors.IsConflict(err) { // after a concurrent write, the next check reads the new state
			log.report(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(k.pause(failures)):
		}
	}
}

// pause returns the time until the next check after the given number of consecutive failures. Initial failures are
// often short-lived, because the controller may be started before the webhook's objects are created. The pause grows by
// one second with each failure, up to the period.
func (k *Keeper) pause(failures int) time.Duration {
	if failures == 0 {
		return k.Rotation.Period()
	}
	return min(k.Rotation.Period(), time.Duration(failures)*impatience)
}

// keep performs a single check and makes the necessary changes. It writes the Secret first, because no API server must
// trust a certificate that could be lost in a crash.
//
// Each check compares caBundle with the desired bundle and corrects differences, even if no certificate changes. This
// repairs a configuration whose caBundle was removed. trust receives the bundle that matches the current content of the
// Secret, so it never writes an authority that exists only in this process.
func (k *Keeper) keep(ctx context.Context) error {
	var configuration admissionregistration.ValidatingWebhookConfiguration
	if err := k.Reader.Get(ctx, types.NamespacedName{Name: k.Configuration}, &configuration); err != nil {
		return fmt.Errorf("cannot read the ValidatingWebhookConfiguration %s: %w; apply deploy/webhook.yaml",
			k.Configuration, err)
	}
	names, err := names(&configuration)
	if err != nil {
		return fmt.Errorf("cannot use ValidatingWebhookConfiguration %s: %w", k.Configuration, err)
	}
	var secret corev1.Secret
	if err := k.Reader.Get(ctx, k.Secret, &secret); err != nil {
		return fmt.Errorf("cannot read the Secret %s: %w; apply deploy/webhook.yaml", k.Secret, err)
	}
	held := read(secret.Data)
	wanted, why, err := k.Rotation.Wanted(held, names, k.trustedFor(&configuration, held.Next.CA), k.Now())
	if err != nil {
		return err
	}
	if why != "" {
		secret.Data = wanted.data()
		if err := k.Client.Update(ctx, &secret); err != nil {
			return fmt.Errorf("cannot write the Secret %s: %w", k.Secret, err)
		}
		ctrl.Log.WithName("webhook-certificate").Info(why, "secret", k.Secret, "names", names)
	}
	return k.trust(ctx, &configuration, wanted.Bundle())
}

// names returns the sorted host names that API servers use to call the webhooks in a configuration: NAME.NAMESPACE.svc
// for a Service, the host for a URL (kubernetes, apiserver/pkg/util/webhook). The controller must not derive the host
// names from its own settings, because the Service may be renamed during installation.
func names(configuration *admissionregistration.ValidatingWebhookConfiguration) ([]string, error) {
	var names []string
	for i := range configuration.Webhooks {
		asked := configuration.Webhooks[i].ClientConfig
		switch {
		case asked.Service != nil:
			names = append(names, asked.Service.Name+"."+asked.Service.Namespace+".svc")
		case asked.URL != nil:
			address, err := url.Parse(*asked.URL)
			if err != nil {
				return nil, err
			}
			names = append(names, address.Hostname())
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return nil, errors.New("it contains no webhooks")
	}
	return names, nil
}

// trustedFor returns how long all webhooks in a configuration have trusted an authority, as observed by this process.
// The result is negative if they do not trust it.
func (k *Keeper) trustedFor(
	configuration *admissionregistration.ValidatingWebhookConfiguration, ca []byte,
) time.Duration {
	if !trusts(configuration, ca) {
		k.trusted = nil
		return -1
	}
	if !bytes.Equal(k.trusted, ca) {
		k.trusted, k.seen = ca, k.Elapsed()
	}
	return k.Elapsed() - k.seen
}

// trusts reports whether the bundles of all webhooks in a configuration contain an authority. The CA of a missing next
// certificate is empty, and trusts returns false for it; without this rule, every bundle would appear to contain the
// empty CA.
func trusts(configuration *admissionregistration.ValidatingWebhookConfiguration, ca []byte) bool {
	for i := range configuration.Webhooks {
		if len(ca) == 0 || !bytes.Contains(configuration.Webhooks[i].ClientConfig.CABundle, ca) {
			return false
		}
	}
	return true
}

// trust writes the bundle to every webhook in a configuration that has a different bundle. It does not change any other
// field.
func (k *Keeper) trust(
	ctx context.Context, configuration *admissionregistration.ValidatingWebhookConfiguration, bundle []byte,
) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	// The resource version makes the API server reject the patch if there was a concurrent change. This is necessary
	// because webhooks are addressed by index.
	operations := []operation{{"replace", "/metadata/resourceVersion", configuration.ResourceVersion}}
	for i := range configuration.Webhooks {
		if !bytes.Equal(configuration.Webhooks[i].ClientConfig.CABundle, bundle) {
			operations = append(operations,
				operation{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), bundle})
		}
	}
	if len(operations) == 1 {
		return nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	if err := k.Client.Patch(ctx, configuration, client.RawPatch(types.JSONPatchType, patch),
		client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("cannot write caBundle of the ValidatingWebhookConfiguration %s: %w", k.Configuration, err)
	}
	return nil
}
