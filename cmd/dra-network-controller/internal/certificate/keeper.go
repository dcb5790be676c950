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

// FieldOwner is the name under which trust is written into the webhook's configuration.
const FieldOwner = "dra-network-controller-webhook"

// Keeper keeps a valid certificate in the Secret, and its authority in the webhook's configuration. It is a manager's
// runnable in the leading replica. Two concurrent keepers are harmless: each write is rejected if the object has
// changed since it was read.
type Keeper struct {
	// Reader reads from the API server: nothing here is worth a cache.
	Reader client.Reader
	// Client writes to it.
	Client client.Client
	// Secret must exist. It belongs to the keeper, who replaces all of its data.
	Secret types.NamespacedName
	// Configuration is the name of the ValidatingWebhookConfiguration. Of each of its webhooks the keeper reads under
	// which name it is asked for, and writes caBundle.
	Configuration string
	// Rotation says when certificates are replaced.
	Rotation Rotation
	// Now is the time, by which certificates are valid.
	Now func() time.Time
	// Elapsed is the time of this process, by which it waits: clocks of replicas may differ, and may be adjusted.
	Elapsed func() time.Duration

	// trusted is the authority that the configuration was seen to trust since the time seen.
	trusted []byte
	seen    time.Duration
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Keeper) NeedLeaderElection() bool { return true }

// Start keeps the certificate until the context ends. It never fails. An error that Start returned would end the
// manager, and with it the controllers, which need no webhook.
func (k *Keeper) Start(ctx context.Context) error {
	log := newSparing(ctrl.Log.WithName("webhook-certificate"),
		"cannot keep the webhook's certificate, objects are judged by their condition only while it is so")
	for failures := 0; ; {
		err := k.keep(ctx)
		failures++
		if err == nil {
			failures = 0
		}
		if !apierrors.IsConflict(err) { // else somebody was faster, and the next look sees what he did
			log.report(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(k.pause(failures)):
		}
	}
}

// pause is the time until the next look after so many failures. Few are over soon: an installation may start the
// controller before it makes the objects of the webhook. The pause grows by a second with each failure, up to the
// period.
func (k *Keeper) pause(failures int) time.Duration {
	if failures == 0 {
		return k.Rotation.Period()
	}
	return min(k.Rotation.Period(), time.Duration(failures)*impatience)
}

// keep checks once and makes the necessary changes: first the Secret, since no API server may trust a certificate that
// a crash could lose.
//
// Trust is compared and written in each check, even if no certificate changes: this repairs a configuration whose
// caBundle was removed. trust gets the bundle of the current content of the Secret, so it never writes an authority
// that only this process knows.
func (k *Keeper) keep(ctx context.Context) error {
	var configuration admissionregistration.ValidatingWebhookConfiguration
	if err := k.Reader.Get(ctx, types.NamespacedName{Name: k.Configuration}, &configuration); err != nil {
		return fmt.Errorf("cannot read the ValidatingWebhookConfiguration %s, which deploy/webhook.yaml makes: %w",
			k.Configuration, err)
	}
	names, err := names(&configuration)
	if err != nil {
		return fmt.Errorf("ValidatingWebhookConfiguration %s: %w", k.Configuration, err)
	}
	var secret corev1.Secret
	if err := k.Reader.Get(ctx, k.Secret, &secret); err != nil {
		return fmt.Errorf("cannot read the Secret %s, which deploy/webhook.yaml makes: %w", k.Secret, err)
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

// names are those under which API servers ask the webhooks of a configuration, sorted. A service is asked as
// NAME.NAMESPACE.svc, a URL by its host (kubernetes, apiserver/pkg/util/webhook). The controller must not guess them
// from its own settings: whoever installs it may rename the Service.
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
		return nil, errors.New("it has no webhooks")
	}
	return names, nil
}

// trustedFor returns how long this process has seen all webhooks of a configuration trust an authority. It is negative if
// they do not.
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

// trusts reports whether all webhooks of a configuration have an authority in their bundle. It returns false for an
// empty authority, of a missing next certificate, which every text contains.
func trusts(configuration *admissionregistration.ValidatingWebhookConfiguration, ca []byte) bool {
	for i := range configuration.Webhooks {
		if len(ca) == 0 || !bytes.Contains(configuration.Webhooks[i].ClientConfig.CABundle, ca) {
			return false
		}
	}
	return true
}

// trust writes the bundle into all webhooks of a configuration that have another one, and touches nothing else of it.
func (k *Keeper) trust(
	ctx context.Context, configuration *admissionregistration.ValidatingWebhookConfiguration, bundle []byte,
) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	// With the version, the API server rejects the patch after a concurrent change: webhooks are identified by their
	// index.
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
