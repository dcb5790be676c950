package certificate

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// cluster contains the objects from deploy/webhook.yaml, and a keeper and a source that share a clock.
type cluster struct {
	t      *testing.T
	api    client.Client
	keeper *Keeper
	source *Source
	now    time.Time
	set    time.Duration // how far the clock has been adjusted, forward or back
	fail   string        // the kind whose writes fail
	writes []string
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, now: epoch}
	wrote := func(kind string) error {
		if c.fail == kind {
			return errors.New("the disk is full")
		}
		c.writes = append(c.writes, kind)
		return nil
	}
	c.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, w client.WithWatch, object client.Object,
			options ...client.UpdateOption) error {
			if err := wrote("Secret"); err != nil {
				return err
			}
			return w.Update(ctx, object, options...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			if err := wrote("Configuration"); err != nil {
				return err
			}
			return w.Patch(ctx, object, patch, options...)
		},
	}).Build()
	secret := types.NamespacedName{Namespace: "ns", Name: "webhook"}
	c.keeper = &Keeper{Reader: c.api, Client: c.api, Secret: secret, Configuration: "ours", Rotation: rotation,
		Now: func() time.Time { return c.now }, Elapsed: func() time.Duration { return c.now.Sub(epoch) - c.set }}
	c.source = &Source{Reader: c.api, Secret: secret, Period: rotation.Period()}
	return c
}

func secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "webhook"}}
}

func configuration() *admissionregistration.ValidatingWebhookConfiguration {
	hook := func(name string) admissionregistration.ValidatingWebhook {
		return admissionregistration.ValidatingWebhook{
			Name: name, FailurePolicy: ptr.To(admissionregistration.Ignore),
			SideEffects:             ptr.To(admissionregistration.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistration.WebhookClientConfig{
				Service: &admissionregistration.ServiceReference{Namespace: "ns", Name: "controller"},
			},
		}
	}
	return &admissionregistration.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "ours", Labels: map[string]string{"a": "b"}},
		Webhooks:   []admissionregistration.ValidatingWebhook{hook("a.example"), hook("b.example")},
	}
}

func (c *cluster) keep() {
	c.t.Helper()
	if err := c.keeper.keep(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	if err := c.source.reload(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) configuration() *admissionregistration.ValidatingWebhookConfiguration {
	c.t.Helper()
	var found admissionregistration.ValidatingWebhookConfiguration
	if err := c.api.Get(c.t.Context(), types.NamespacedName{Name: "ours"}, &found); err != nil {
		c.t.Fatal(err)
	}
	return &found
}

// served checks that clients accept the source's certificate for each webhook, and returns the certificate.
func (c *cluster) served() *x509.Certificate {
	c.t.Helper()
	certificate, err := c.source.GetCertificate(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, hook := range c.configuration().Webhooks {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(hook.ClientConfig.CABundle)
		if _, err := certificate.Leaf.Verify(x509.VerifyOptions{DNSName: service[0], Roots: roots,
			CurrentTime: c.now}); err != nil {
			c.t.Errorf("webhook %s does not trust the certificate: %v", hook.Name, err)
		}
	}
	return certificate.Leaf
}

// looks runs n checks and returns the kinds of the objects that were written.
func (c *cluster) looks(n int) []string {
	c.t.Helper()
	c.writes = nil
	for range n {
		c.keep()
		c.served()
		c.now = c.now.Add(rotation.Period())
	}
	return c.writes
}

func TestKeeper(t *testing.T) {
	c := newCluster(t, secret(), configuration())
	if diff := cmp.Diff([]string{"Secret", "Configuration"}, c.looks(3)); diff != "" {
		t.Errorf("wrong initial writes (-want +got):\n%s", diff)
	}
	first := c.served()
	c.now = epoch.Add(61 * 24 * time.Hour)
	// The next certificate is created and trusted. Two checks later, it is the current one, and its position in the
	// bundle has changed.
	if diff := cmp.Diff([]string{"Secret", "Configuration", "Secret", "Configuration"}, c.looks(5)); diff != "" {
		t.Errorf("wrong writes during a certificate rotation (-want +got):\n%s", diff)
	}
	if c.served().Equal(first) {
		t.Error("the certificate was not replaced")
	}
	got, want := c.configuration(), configuration()
	for i := range got.Webhooks {
		got.Webhooks[i].ClientConfig.CABundle = nil
	}
	got.ResourceVersion, got.ManagedFields, got.TypeMeta = "", nil, metav1.TypeMeta{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("more than the CA bundle changed (-before +after):\n%s", diff)
	}
}

// The next certificate is not used until API servers have read its authority. Only the elapsed time matters: adjusting
// the clock in the meantime neither shortens nor extends the wait.
func TestClockIsSetWhileACertificateIsReplaced(t *testing.T) {
	for _, jump := range []time.Duration{-5 * time.Hour, 5 * time.Hour} {
		c := newCluster(t, secret(), configuration())
		c.looks(3)
		first := c.served()
		c.now = epoch.Add(61 * 24 * time.Hour)
		c.looks(2) // the certificate is created and trusted
		c.now, c.set = c.now.Add(jump), c.set+jump
		c.looks(1)
		if !c.served().Equal(first) {
			t.Errorf("clock moved by %s: the certificate was replaced immediately", jump)
		}
		c.looks(2)
		if c.served().Equal(first) {
			t.Errorf("clock moved by %s: the certificate was not replaced", jump)
		}
	}
}

// TestKeeperMends checks that the keeper undoes changes that users and other programs make to its objects.
func TestKeeperMends(t *testing.T) {
	for name, spoil := range map[string]func(*cluster) client.Object{
		"trust is taken away": func(c *cluster) client.Object {
			found := c.configuration()
			found.Webhooks[1].ClientConfig.CABundle = nil
			return found
		},
		"trust is another": func(c *cluster) client.Object {
			found := c.configuration()
			found.Webhooks[0].ClientConfig.CABundle = pairFor(c.t, service, epoch).CA
			return found
		},
		"the Secret is emptied": func(c *cluster) client.Object {
			var found corev1.Secret
			if err := c.api.Get(c.t.Context(), c.keeper.Secret, &found); err != nil {
				c.t.Fatal(err)
			}
			found.Data = nil
			return &found
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, secret(), configuration())
			c.keep()
			if err := c.api.Update(t.Context(), spoil(c)); err != nil {
				t.Fatal(err)
			}
			c.keep()
			c.served()
		})
	}
}

// TestKeeperGoesOn checks that the keeper continues after a failure, no matter after which of its writes it was
// interrupted.
func TestKeeperGoesOn(t *testing.T) {
	for _, kind := range []string{"Secret", "Configuration"} {
		c := newCluster(t, secret(), configuration())
		c.fail = kind
		if err := c.keeper.keep(t.Context()); err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("failing %s: error = %v, want \"the disk is full\"", kind, err)
		}
		c.fail = ""
		c.looks(1)
		c.now = epoch.Add(61 * 24 * time.Hour)
		c.fail = kind
		for range 5 { // nothing is served before it is trusted
			if err := c.keeper.keep(t.Context()); err == nil {
				t.Errorf("failing %s: got no error, want one", kind)
			}
			if err := c.source.reload(t.Context()); err != nil {
				t.Error(err)
			}
			c.served()
			c.now = c.now.Add(rotation.Period())
		}
		c.fail = ""
		c.looks(5)
		if got := read(c.secret().Data); len(got.Next.CA) > 0 || len(got.FormerCA) == 0 {
			t.Errorf("after failures of %s: the certificate was not replaced", kind)
		}
	}
}

func (c *cluster) secret() *corev1.Secret {
	c.t.Helper()
	var found corev1.Secret
	if err := c.api.Get(c.t.Context(), c.keeper.Secret, &found); err != nil {
		c.t.Fatal(err)
	}
	return &found
}

// TestTwoKeepers runs two keepers concurrently while one loses its lease: the slower keeper's writes are rejected and
// do no harm.
func TestTwoKeepers(t *testing.T) {
	c := newCluster(t, secret(), configuration())
	slow := *c.keeper
	slow.Reader = stale{c.api, secret(), configuration()}
	c.keep()
	before := c.secret()
	if err := slow.keep(t.Context()); !apierrors.IsConflict(err) {
		t.Errorf("the slower keeper's keep: error = %v, want a conflict", err)
	}
	if err := slow.trust(t.Context(), staleConfiguration(), []byte("?")); !apierrors.IsConflict(err) {
		t.Errorf("the slower keeper's trust: error = %v, want a conflict", err)
	}
	if !bytes.Equal(before.Data[keyCertificate], c.secret().Data[keyCertificate]) {
		t.Error("the slower keeper replaced the certificate")
	}
	c.served()
}

func staleConfiguration() *admissionregistration.ValidatingWebhookConfiguration {
	old := configuration()
	old.ResourceVersion = "1"
	return old
}

// stale is a reader that returns outdated versions of the objects.
type stale struct {
	client.Reader
	secret        *corev1.Secret
	configuration *admissionregistration.ValidatingWebhookConfiguration
}

func (s stale) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch copied := object.(type) {
	case *corev1.Secret:
		s.secret.DeepCopyInto(copied)
		copied.ResourceVersion = "1"
	case *admissionregistration.ValidatingWebhookConfiguration:
		s.configuration.DeepCopyInto(copied)
		copied.ResourceVersion = "1"
	}
	return nil
}

func TestKeeperSaysWhatIsMissing(t *testing.T) {
	empty := configuration()
	empty.Webhooks = nil
	for want, objects := range map[string][]client.Object{
		"cannot read the ValidatingWebhookConfiguration ours: ":                   {secret()},
		"cannot read the Secret ns/webhook: ":                                     {configuration()},
		"cannot use ValidatingWebhookConfiguration ours: it contains no webhooks": {secret(), empty},
	} {
		if err := newCluster(t, objects...).keeper.keep(t.Context()); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestPause(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: 10 * time.Second, 1: time.Second, 3: 3 * time.Second,
		100: 10 * time.Second} {
		if got := (&Keeper{Rotation: rotation}).pause(failures); got != want {
			t.Errorf("pause after %d failures is %s, want %s", failures, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	c := configuration()
	c.Webhooks[0].ClientConfig = admissionregistration.WebhookClientConfig{URL: ptr.To(
		"https://127.0.0.1:9684/validate",
	)}
	got, err := names(c)
	if diff := cmp.Diff([]string{"127.0.0.1", "controller.ns.svc"}, got); diff != "" || err != nil {
		t.Errorf("error = %v, wrong names (-want +got):\n%s", err, diff)
	}
}

func TestSource(t *testing.T) {
	c := newCluster(t)
	if err := c.source.Ready(nil); err == nil {
		t.Error("the source is ready before its first look")
	}
	if err := c.source.reload(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "cannot read the Secret ns/webhook") {
		t.Errorf("reload without a Secret: error = %v, want one that names the Secret", err)
	}
	if err := c.source.Ready(nil); err != nil {
		t.Errorf("a missing Secret keeps the source from becoming ready: %v", err)
	}
	if _, err := c.source.GetCertificate(nil); err == nil ||
		!strings.Contains(err.Error(), "the Secret ns/webhook contains no certificate yet") {
		t.Errorf("GetCertificate without a certificate: error = %v, want one that names the Secret", err)
	}
	c = newCluster(t, secret(), configuration())
	c.keep()
	before := c.served()
	spoiled := c.secret()
	spoiled.Data[keyKey] = []byte("?")
	if err := c.api.Update(t.Context(), spoiled); err != nil {
		t.Fatal(err)
	}
	if err := c.source.reload(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "cannot use the certificate in the Secret ns/webhook") {
		t.Errorf("reload of a damaged key: error = %v, want one that names the Secret", err)
	}
	if !c.served().Equal(before) {
		t.Error("the previous certificate is no longer served")
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	c := newCluster(t) // a cluster in which everything fails
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- c.source.Start(ctx) }()
	go func() { ended <- c.keeper.Start(ctx) }()
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestErrorsAreLoggedOnce(t *testing.T) {
	var lines []string
	log := newSparing(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}), "cannot")
	for _, err := range []error{nil, errors.New("a"), errors.New("a"), errors.New("b"), nil, nil, errors.New("b")} {
		log.report(err)
	}
	want := []string{`"msg"="cannot" "error"="a"`, `"msg"="cannot" "error"="b"`, `"level"=0 "msg"="resolved: cannot"`,
		`"msg"="cannot" "error"="b"`}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("wrong log (-want +got):\n%s", diff)
	}
}
