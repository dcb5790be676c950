package controller

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec/claimspectest"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	topologycorpus "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1/corpus"
	policycorpus "github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus"
)

const (
	webhookAddress       = "127.0.0.1:9684"
	standbyAddress       = "127.0.0.1:9685"
	webhookSecret        = "dra-network-controller-webhook"
	webhookConfiguration = "dra-network-controller"
	systemNamespace      = "dra-network"
)

// withWebhook returns the arguments for one of several controller replicas, with certificates that are valid for half a
// minute.
func withWebhook(address string) []string {
	return []string{"--leader-elect", "--leader-elect-namespace=" + systemNamespace, "--health-probe-bind-address=0",
		"--webhook-bind-address=" + address, "--webhook-certificate-validity=30s",
		"--webhook-certificate-secret=" + systemNamespace + "/" + webhookSecret}
}

// The parts of TestAdmission run in order, because each depends on the state that the previous part leaves behind.
func TestAdmission(t *testing.T) {
	p := newPlane(t)
	p.installWebhook()
	stop := p.startController(withWebhook(webhookAddress)...)
	bad := invalid(t)
	p.until("a topology that the definition takes is refused", func() error { return p.refused(bad[len(bad)-1]) })
	first := p.servedNow()
	stopStandby := p.startController(append(withWebhook(standbyAddress), "--metrics-bind-address=0")...)
	p.until("the second replica serves too", func() error { return p.answers(standbyAddress) })

	t.Run("everything invalid is refused with field and reason", func(t *testing.T) {
		p := p.forTest(t)
		for _, c := range bad {
			if err := p.refused(c); err != nil {
				t.Error(err)
			}
		}
		t.Logf("checked %d objects", len(bad))
	})
	t.Run("everything valid is taken", func(t *testing.T) { p.forTest(t).testValid() })
	t.Run("questions are answered while the certificate is replaced",
		func(t *testing.T) { p.forTest(t).testRotation(first, bad[len(bad)-1]) })
	t.Run("trust that is taken away comes back", func(t *testing.T) { p.forTest(t).testTrust(bad[len(bad)-1]) })
	stop()
	t.Run("the second replica goes on", func(t *testing.T) { p.forTest(t).testStandby() })
	stopStandby()
	stop = p.startController(withWebhook(webhookAddress)...)
	p.until("the webhook is served again", func() error { return p.answers(webhookAddress) })
	t.Run("classes come and go with their topology", func(t *testing.T) { p.forTest(t).testTimes() })
	t.Run("samples are applied and get their classes", func(t *testing.T) { p.forTest(t).testSamples() })
	t.Run("claims are held against their topologies", func(t *testing.T) { p.forTest(t).testClaimParameters() })
	stop()
	stop = p.startController()
	t.Run("without the webhook the conditions tell", func(t *testing.T) { p.forTest(t).testConditions(bad) })
	stop()
	t.Run("without the controller everything is written",
		func(t *testing.T) { p.forTest(t).testWithoutController(bad[len(bad)-1]) })
	t.Run("without the definitions claims are written", func(t *testing.T) { p.forTest(t).testWithoutDefinitions() })
}

// installWebhook creates the objects in deploy/webhook.yaml, adapted for a controller that runs next to the API server.
func (p *plane) installWebhook() {
	p.t.Helper()
	deploy := filepath.Join(p.clone, "deploy")
	p.kubectl("", "apply", "-f", filepath.Join(deploy, "namespace.yaml"), "-f", filepath.Join(deploy, "webhook.yaml"))
	configuration := p.configuration()
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig = admissionregistration.WebhookClientConfig{URL: ptr.To("https://" +
			webhookAddress + "/validate")}
		configuration.Webhooks[i].TimeoutSeconds = ptr.To[int32](30) // tolerates a slow machine
	}
	if err := p.api.Update(p.t.Context(), configuration); err != nil {
		p.t.Fatal(err)
	}
}

func (p *plane) configuration() *admissionregistration.ValidatingWebhookConfiguration {
	p.t.Helper()
	var configuration admissionregistration.ValidatingWebhookConfiguration
	if err := p.api.Get(p.t.Context(), types.NamespacedName{Name: webhookConfiguration}, &configuration); err != nil {
		p.t.Fatal(err)
	}
	return &configuration
}

// servedNow returns the certificate that the Secret currently contains.
func (p *plane) servedNow() []byte {
	p.t.Helper()
	var secret corev1.Secret
	if err := p.api.Get(p.t.Context(), types.NamespacedName{Namespace: systemNamespace, Name: webhookSecret},
		&secret); err != nil {
		p.t.Fatal(err)
	}
	return secret.Data["tls.crt"]
}

// invalidCase is an object that must be rejected.
type invalidCase struct {
	name   string
	object map[string]any
	// says lists texts that the message to the object's author must contain.
	says []string
	// definition is true if the custom resource definition rejects the object even without the webhook.
	definition bool
}

// dropped is the name of the case where the API server drops a null value from the object before validating it.
const dropped = "an attribute without a value"

// invalid returns all invalid cases in the corpora. The last case is a topology that the definition accepts.
func invalid(t *testing.T) []invalidCase {
	t.Helper()
	var cases []invalidCase
	for _, c := range policycorpus.Invalid(t) {
		if c.Name != dropped {
			cases = append(cases, newInvalidCase("policy: "+c.Name, c.Object(t), c.Undecodable, c.Definition, c.Field,
				c.Reason, c.Fix))
		}
	}
	for _, c := range topologycorpus.InvalidSchemas(t) {
		cases = append(cases, newInvalidCase("schema: "+c.Name, c.Object(t), c.Undecodable, c.Definition,
			c.Field, c.Reason))
	}
	var last invalidCase
	for _, c := range topologycorpus.Invalid(t) {
		refused := newInvalidCase("topology: "+c.Name, c.Object(t), c.Undecodable, c.Definition, c.Field, c.Reason)
		cases = append(cases, refused)
		if !refused.definition {
			last = refused
		}
	}
	return append(cases, last)
}

// newInvalidCase returns a case that expects the message from the custom resource definition, if there is one, and
// otherwise the message from the Go code, which begins with the field.
func newInvalidCase(
	name string, object map[string]any, undecodable bool, definition string, says ...string,
) invalidCase {
	switch {
	case definition != "":
		says = []string{definition}
	// values that Go cannot decode are rejected by the types in the definition, with messages from the API server
	case undecodable:
		says = says[:1]
	}
	return invalidCase{name: name, object: object, says: says, definition: definition != "" || undecodable}
}

// refused returns nil if an object is rejected with the expected message, and otherwise an error that describes the
// problem.
func (p *plane) refused(c invalidCase) error {
	err := p.api.Create(p.t.Context(), &unstructured.Unstructured{Object: c.object}, client.DryRunAll)
	if err == nil {
		return fmt.Errorf("%s: the object was accepted", c.name)
	}
	said := dotted(err.Error())
	for _, want := range c.says {
		if !strings.Contains(said, dotted(want)) {
			return fmt.Errorf("%s: the object was rejected with %w instead of %q", c.name, err, want)
		}
	}
	return nil
}

// dotted converts map keys to the notation used in the definitions, which write Go's a[b] as a.b.
func dotted(text string) string { return strings.NewReplacer("[", ".", "]", "").Replace(text) }

// testValid checks that all valid objects are accepted, including samples from older versions.
func (p *plane) testValid() {
	p.t.Helper()
	var objects []map[string]any
	for _, c := range policycorpus.Valid(p.t) {
		objects = append(objects, c.Object(p.t))
	}
	for _, c := range topologycorpus.Valid(p.t) {
		objects = append(objects, c.Object(p.t))
	}
	for _, object := range objects {
		if err := p.api.Create(p.t.Context(), &unstructured.Unstructured{Object: object},
			client.DryRunAll); err != nil {
			p.t.Errorf("%v: %v", object["spec"], err)
		}
	}
	for _, samples := range []string{filepath.Join(p.clone, "deploy", "samples"),
		filepath.Join(p.clone, "deploy", "samples", "examples"), filepath.Join(p.clone, "e2e", "controller", "testdata",
			"samples")} {
		p.kubectl("", "create", "--dry-run=server", "-f", samples)
	}
}

// testSamples applies every sample as a whole and waits for the classes for its topologies. The admission policy for
// claims, which requires a claim to request all of a topology's classes, must accept samples whose pods request more
// than one class.
func (p *plane) testSamples() {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.clone, "deploy", "samples", "examples", "*.yaml"))
	if err != nil || len(files) == 0 {
		p.t.Fatalf("found %d samples (%v), want at least one", len(files), err)
	}
	p.until("there is an account for pods", func() error {
		_, err := p.try("", "get", "serviceaccount", "default")
		return err
	})
	for _, file := range files {
		p.kubectl("", "apply", "-f", file)
		p.until(filepath.Base(file)+" has its classes", func() error {
			out, err := p.try("", "get", "networktopologies", "-o",
				`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[*].status} {.status.deviceClasses}{"\n"}{end}`)
			if err != nil || !strings.Contains(out, "[") ||
				strings.Count(out, "True True") != strings.Count(out, "\n") {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		p.kubectl("", "delete", "--ignore-not-found", "--grace-period=0", "--force", "-f", file)
	}
}

// testClaimParameters creates claims with driver parameters that nodes would reject. Users who change a topology and
// then create a claim for it do not have to wait in between: the webhook does not reject claims that depend on an
// object that the controller has not received yet.
func (p *plane) testClaimParameters() {
	p.t.Helper()
	p.kubectl(claimspectest.Topologies("eth1", "eth2"), "apply", "-f", "-")
	var cases []claimspectest.Case
	for _, c := range claimspectest.Cases(p.t) {
		if c.WhenWritten {
			cases = append(cases, c)
		}
	}
	if len(cases) < 3 {
		p.t.Fatalf("found %d cases, want at least 3", len(cases))
	}
	for _, c := range cases {
		p.until(c.Name+" is refused", func() error { // classes are created with a delay
			out, err := p.try(c.Templates(), "create", "--dry-run=server", "-f", "-")
			if err == nil {
				return errors.New("it is taken")
			}
			for _, want := range append([]string{"spec.spec.devices: "}, c.Wants...) {
				if !strings.Contains(out, want) {
					return fmt.Errorf("kubectl printed %s, want %s", out, want)
				}
			}
			return nil
		})
	}
	const claim = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: asks, annotations: {%s}}, ` +
		`spec: {devices: {requests: [{name: r, exactly: {deviceClassName: bad-one-uplink}}], config: [{opaque: {` +
		`driver: dra.networking, parameters: {mac: "02:00:00:00:00:01"}}}]}}}`
	if out, err := p.try(fmt.Sprintf(claim, ""), "create", "--dry-run=server", "-f", "-"); err == nil {
		p.t.Errorf("a claim that should be rejected was accepted: %s", out)
	}
	p.kubectl(fmt.Sprintf(claim, "resource.kubernetes.io/pod-claim-name: r"), "create", "--dry-run=server", "-f", "-")
	p.kubectl("", "patch", "networktopology", "bad-one", "--type=json", "-p",
		`[{"op": "add", "path": "/spec/steps/0/claimParameters", "value": ["mac"]}]`)
	p.kubectl(fmt.Sprintf(claim, ""), "create", "--dry-run=server", "-f", "-")
	p.kubectl("", "delete", "networktopologies", "--all")
}

// testRotation sends requests in a tight loop until a new certificate is served and the previous one has expired.
func (p *plane) testRotation(first []byte, c invalidCase) {
	p.t.Helper()
	begin := time.Now()
	asked := 0
	var replaced time.Time
	p.until("the certificate is replaced", func() error {
		asked++
		if err := p.refused(c); err != nil {
			p.t.Errorf("request %d, sent %s after the first: %v", asked, time.Since(begin), err)
		}
		if err := p.answers(standbyAddress); err != nil {
			p.t.Errorf("the second replica failed %s after the first request: %v", time.Since(begin), err)
		}
		switch {
		case bytes.Equal(first, p.servedNow()):
			return errors.New("the certificate is the same")
		case replaced.IsZero():
			replaced = time.Now()
		}
		if time.Since(replaced) < 6*time.Second { // the old certificate is not used in the last fifth of its validity
			return errors.New("the certificate was replaced a moment ago")
		}
		return nil
	})
	p.t.Logf("%d requests in %s", asked, time.Since(begin).Round(time.Second))
	got := p.configuration().Webhooks[0]
	if *got.FailurePolicy != admissionregistration.Ignore ||
		*got.SideEffects != admissionregistration.SideEffectClassNone ||
		len(got.AdmissionReviewVersions) != 1 || len(got.Rules) != 1 {
		p.t.Errorf("the controller changed more than the trust bundle: %+v", got)
	}
}

// answers returns nil if a client that uses the webhook configuration's trust bundle can connect to a replica, and the
// error otherwise.
func (p *plane) answers(address string) error {
	bundle := p.configuration().Webhooks[0].ClientConfig.CABundle
	connection, err := p.DialContext(p.t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return tls.Client(connection,
		&tls.Config{RootCAs: roots, ServerName: "127.0.0.1",
			MinVersion: tls.VersionTLS12}).HandshakeContext(p.t.Context())
}

// testStandby checks that the remaining replica continues to use the certificate.
func (p *plane) testStandby() {
	p.t.Helper()
	configuration := p.configuration()
	configuration.Webhooks[0].ClientConfig.CABundle = nil
	if err := p.api.Update(p.t.Context(), configuration); err != nil {
		p.t.Fatal(err)
	}
	p.until("the second replica has its certificate trusted", func() error { return p.answers(standbyAddress) })
}

// testTrust overwrites the webhook configuration, like a tool that restores its own version.
func (p *plane) testTrust(c invalidCase) {
	p.t.Helper()
	configuration := p.configuration()
	configuration.Webhooks[0].ClientConfig.CABundle = nil
	if err := p.api.Update(p.t.Context(), configuration); err != nil {
		p.t.Fatal(err)
	}
	p.until("the API server trusts the webhook again", func() error {
		if len(p.configuration().Webhooks[0].ClientConfig.CABundle) == 0 {
			return errors.New("the CA bundle is empty")
		}
		return p.refused(c)
	})
}

// testConditions stores objects that only the webhook would reject, and checks the conditions that the controller
// reports for them.
func (p *plane) testConditions(bad []invalidCase) {
	p.t.Helper()
	stored, said := map[string]time.Time{}, map[string][]string{}
	for i, c := range bad {
		object := &unstructured.Unstructured{Object: c.object}
		if c.definition {
			continue
		}
		object = object.DeepCopy()
		object.SetName(fmt.Sprintf("bad%d", i))
		if err := p.api.Create(p.t.Context(), object); err != nil {
			p.t.Fatalf("%s: %v", c.name, err)
		}
		stored[object.GetKind()+"/"+object.GetName()], said[object.GetKind()+"/"+object.GetName()] = time.Now(), c.says
	}
	var slowest time.Duration
	for name, created := range stored {
		p.until(name+" has a condition that tells", func() error {
			kind, name, _ := strings.Cut(name, "/")
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion().String(),
				"kind": kind}}
			if err := p.api.Get(p.t.Context(), types.NamespacedName{Name: name}, object); err != nil {
				return err
			}
			return refusedIn(object, said[kind+"/"+name])
		})
		slowest = max(slowest, time.Since(created))
	}
	p.t.Logf("%d objects got their conditions within %s of being written", len(stored),
		slowest.Round(time.Millisecond))
	if classes := p.classes(); len(classes) > 0 {
		p.t.Errorf("found %d classes for topologies that were not accepted, such as %s", len(classes), classes[0].Name)
	}
}

// refusedIn returns an error unless an object's Accepted condition is False and the condition's message contains all
// texts.
func refusedIn(object *unstructured.Unstructured, says []string) error {
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, condition := range conditions {
		condition, _ := condition.(map[string]any)
		if condition["type"] != "Accepted" || condition["status"] != "False" {
			continue
		}
		for _, want := range says {
			if message, _ := condition["message"].(string); !strings.Contains(message, want) {
				return fmt.Errorf("the message is %s instead of %q", message, want)
			}
		}
		return nil
	}
	return fmt.Errorf("conditions: %v", conditions)
}

// testTimes logs how long it takes until classes are created, repaired and deleted.
func (p *plane) testTimes() {
	p.t.Helper()
	p.kubectl(
		`{apiVersion: networking.dra.io/v1alpha1, kind: NetworkTopology, metadata: {name: timed}, spec: {steps: [{name: a, type: macvlan, selector: {cel: "true"}}]}}`, "create", "-f", "-",
	)
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "timed-a"}}
	get := func() error { return p.api.Get(p.t.Context(), client.ObjectKeyFromObject(class), class) }
	timed := func(what string, try func() error) {
		begin := time.Now()
		p.until(what, try)
		p.t.Logf("%s %s later", what, time.Since(begin).Round(time.Millisecond))
	}
	timed("the class exists", get)
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "replace", "path": "/spec/selectors", "value": []}]`))
	if err := p.api.Patch(p.t.Context(), class, patch); err != nil {
		p.t.Fatal(err)
	}
	timed("the class is repaired", func() error {
		if err := get(); err != nil || len(class.Spec.Selectors) == 0 {
			return fmt.Errorf("the class has %d selectors (%w)", len(class.Spec.Selectors), err)
		}
		return nil
	})
	p.kubectl("", "delete", "networktopology", "timed")
	timed("the class is gone", func() error {
		err := get()
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the class still exists (%w)", err)
	})
}

// testWithoutController creates claims and objects of the project's kinds while no process serves the webhook.
func (p *plane) testWithoutController(c invalidCase) {
	p.t.Helper()
	if err := p.api.Create(p.t.Context(), &unstructured.Unstructured{Object: c.object}, client.DryRunAll); err != nil {
		p.t.Errorf("an object of the project's kinds was rejected: %v", err)
	}
	p.writeClaims()
}

// testWithoutDefinitions creates claims while the API server does not have the project's definitions, but still has the
// admission policy that reads them.
func (p *plane) testWithoutDefinitions() {
	p.t.Helper()
	p.kubectl("", "delete", "-f", filepath.Join(p.clone, "deploy", "crds"))
	p.writeClaims()
}

// writeClaims creates claims and claim templates for another driver and for this driver, in all API versions, as a dry
// run.
func (p *plane) writeClaims() {
	p.t.Helper()
	begin := time.Now()
	for _, class := range []string{"gpu", "timed-a"} {
		spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}}}}
		meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "any"}
		for _, object := range []client.Object{
			&resourceapi.ResourceClaim{ObjectMeta: meta, Spec: spec},
			&resourceapi.ResourceClaimTemplate{ObjectMeta: meta,
				Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}},
		} {
			ctx, cancel := context.WithTimeout(p.t.Context(), patience)
			if err := p.api.Create(ctx, object, client.DryRunAll); err != nil {
				p.t.Errorf("%T for %s: %v", object, class, err)
			}
			cancel()
		}
	}
	p.t.Logf("four writes took %s", time.Since(begin).Round(time.Millisecond))
}
