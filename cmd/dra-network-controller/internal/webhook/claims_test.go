package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// topologyReader returns a reader for a single topology, whose step allows the given parameters. If broken is true,
// reading fails.
func topologyReader(t *testing.T, allows string, broken bool) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := topologyapi.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	topology := &topologyapi.NetworkTopology{}
	if err := yaml.UnmarshalStrict([]byte(`{metadata: {name: net}, spec: {steps: [{name: a, type: macvlan, `+
		`claimParameters: [`+allows+`]}]}, status: {deviceClasses: [net-a]}}`), topology); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no connection")
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(topology).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			if broken {
				return failure
			}
			return c.List(ctx, list, options...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
			options ...client.GetOption) error {
			if broken {
				return failure
			}
			return c.Get(ctx, key, object, options...)
		},
	}).Build()
}

// written returns an admission request for a claim with a MAC address, or for a template for such a claim.
func written(t *testing.T, kind, mac string) admission.Request {
	t.Helper()
	spec := `{devices: {requests: [{name: r, exactly: {deviceClassName: net-a}}], config: [{opaque: ` +
		`{driver: dra.networking, parameters: {mac: "` + mac + `"}}}]}}`
	if kind == kindTemplate {
		spec = "{spec: " + spec + "}"
	}
	object, err := yaml.YAMLToJSONStrict([]byte("{metadata: {namespace: apps, name: web}, spec: " + spec + "}"))
	if err != nil || !json.Valid(object) {
		t.Fatal(err)
	}
	asked := request(kind, admissionv1.Create, object, nil)
	asked.Kind.Group, asked.Kind.Version = resourceapi.GroupName, "v1"
	return asked
}

func TestClaimsAreHeldAgainstTopologies(t *testing.T) {
	const right, wrong = "02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff"
	const mac, nothing = "mac", ""
	const refusal = "refused: spec.devices: Invalid value: "
	for name, test := range map[string]struct {
		kind, mac                 string
		cached, stored            string // the parameters that the topology allows, in the cache and in the API server
		cacheBroken, serverBroken bool
		want                      string
	}{
		"right": {kind: kindClaim, mac: right, cached: mac, stored: mac, serverBroken: true, want: "allowed"},
		"malformed": {kind: kindClaim, mac: wrong, cached: mac, stored: mac,
			want: refusal + `claim apps/web: configuration for dra.networking of request r: mac "ff`},
		"a template": {kind: kindTemplate, mac: wrong, cached: mac, stored: mac,
			want: "refused: spec.spec.devices: Invalid value: claim apps/web"},
		"not allowed": {kind: kindClaim, mac: right, cached: nothing, stored: nothing,
			want: refusal + `NetworkTopology net: spec.steps[0].claimParameters: Forbidden: claim apps/web sets mac`},
		"allowed a moment ago": {kind: kindClaim, mac: right, cached: nothing, stored: mac, want: "allowed"},
		"without a cache": {kind: kindClaim, mac: wrong, cacheBroken: true,
			want: "allowed: not checked: cannot list NetworkTopologies: no connection"},
		"without the API server": {kind: kindClaim, mac: wrong, serverBroken: true,
			want: "allowed: not checked: cannot read NetworkTopology net: no connection"},
	} {
		t.Run(name, func(t *testing.T) {
			handler := NewHandler(topologyReader(t, test.cached, test.cacheBroken),
				topologyReader(t, test.stored, test.serverBroken))
			got := answer(handler.Handle(t.Context(), written(t, test.kind, test.mac)))
			if test.want == "allowed" && got != test.want || !strings.HasPrefix(got, test.want) {
				t.Errorf("got answer %q, want %q", got, test.want)
			}
		})
	}
	unreadable := request(kindClaim, admissionv1.Create, []byte(`{"spec": 7}`), nil)
	unreadable.Kind.Group, unreadable.Kind.Version = resourceapi.GroupName, "v1"
	got := answer(NewHandler(nil, nil).Handle(t.Context(), unreadable))
	if !strings.HasPrefix(got, "allowed: not checked") {
		t.Errorf("a claim that cannot be parsed: got %s, want allowed", got)
	}
}

func TestUnusedBandwidthIsAWarning(t *testing.T) {
	object, err := yaml.YAMLToJSONStrict([]byte(`{metadata: {namespace: apps, name: web}, spec: {devices: {requests: [
		{name: r, exactly: {deviceClassName: net-a, capacity: {requests: {dra.networking/bandwidth: "7"}}}}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	asked := request(kindClaim, admissionv1.Create, object, nil)
	asked.Kind.Group, asked.Kind.Version = resourceapi.GroupName, "v1"
	topologies := topologyReader(t, "", false)
	response := NewHandler(topologies, topologies).Handle(t.Context(), asked)
	if !response.Allowed || len(response.Warnings) != 1 || !strings.Contains(response.Warnings[0], "NetworkTopology net") {
		t.Errorf("response = %+v, want a warning about NetworkTopology net", response)
	}
}
