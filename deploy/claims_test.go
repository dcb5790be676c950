package deploy_test

import (
	"fmt"
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestClaimsAreWhole uses the API server's own compiler to evaluate the admission policy for claims.
func TestClaimsAreWhole(t *testing.T) {
	const (
		lan   = `{metadata: {name: lan}, spec: {steps: []}, status: {deviceClasses: [lan-port]}}`
		two   = `{metadata: {name: pair}, spec: {steps: []}, status: {deviceClasses: [pair-a, pair-b]}}`
		fresh = `{metadata: {name: new}, spec: {steps: [{name: a, type: macvlan}]}}`
		// The namespace's labels are team: ai and tier: "1".
		ours = `{metadata: {name: lan}, spec: {allowedNamespaces: {matchLabels: {team: ai}}}, status: ` +
			`{deviceClasses: [lan-port]}}`
		theirs = `{metadata: {name: lan}, spec: {allowedNamespaces: {matchLabels: {team: web}}}, status: ` +
			`{deviceClasses: [lan-port]}}`
		labelled = `{metadata: {name: lan}, spec: {allowedNamespaces: {matchLabels: {colour: red}}}, status: ` +
			`{deviceClasses: [lan-port]}}`
		expression = `{metadata: {name: lan}, spec: {allowedNamespaces: {matchExpressions: [{key: KEY, operator: ` +
			`OPERATOR, values: [ai, db]}]}}, status: {deviceClasses: [lan-port]}}`
	)
	exactly := func(classes ...string) string {
		var requests []string
		for _, class := range classes {
			requests = append(requests, "{name: r-"+class+", exactly: {deviceClassName: "+class+"}}")
		}
		return "{devices: {requests: [" + strings.Join(requests, ", ") + "]}}"
	}
	with := func(key, operator string) string {
		return strings.NewReplacer("KEY", key, "OPERATOR", operator).Replace(expression)
	}
	firstAvailable := `{devices: {requests: [{name: any, firstAvailable: [{name: x, deviceClassName: CLASS}, ` +
		`{name: y, deviceClassName: gpu}]}]}}`
	const wrongNamespace = "may not be used in the namespace apps"
	for name, test := range map[string]struct {
		topology, claim string
		want            string // part of the only rejection message, or empty if the claim is accepted
	}{
		"another driver's":          {two, exactly("gpu"), ""},
		"no requests":               {two, `{}`, ""},
		"one root":                  {lan, exactly("lan-port", "gpu"), ""},
		"one root, twice":           {lan, exactly("lan-port", "lan-port"), ""},
		"one root, first available": {lan, strings.ReplaceAll(firstAvailable, "CLASS", "lan-port"), ""},
		"all roots":                 {two, exactly("pair-b", "pair-a"), ""},
		"one root of two": {two, exactly("pair-b"),
			"the claim requests pair-b of the NetworkTopology pair, which needs all of its " +
				"devices: add a request for the DeviceClass pair-a"},
		"one of two roots as available": {two, strings.ReplaceAll(firstAvailable, "CLASS", "pair-a"),
			"request any has a DeviceClass of the NetworkTopology pair under firstAvailable, but a pod needs the " +
				"devices of all of pair-a, pair-b"},
		"others first available":     {two, strings.ReplaceAll(firstAvailable, "CLASS", "nic"), ""},
		"no classes yet":             {fresh, exactly("new-a"), ""},
		"a namespace with the label": {ours, exactly("lan-port"), ""},
		"with another label":         {theirs, exactly("lan-port"), wrongNamespace},
		"without the label":          {labelled, exactly("lan-port"), wrongNamespace},
		"not ours in any namespace":  {theirs, exactly("gpu"), ""},
		"first available elsewhere":  {theirs, strings.ReplaceAll(firstAvailable, "CLASS", "lan-port"), wrongNamespace},
		"In":                         {with("team", "In"), exactly("lan-port"), ""},
		"In, another value":          {with("tier", "In"), exactly("lan-port"), wrongNamespace},
		"In, no label":               {with("colour", "In"), exactly("lan-port"), wrongNamespace},
		"NotIn":                      {with("team", "NotIn"), exactly("lan-port"), wrongNamespace},
		"NotIn, another value":       {with("tier", "NotIn"), exactly("lan-port"), ""},
		"NotIn, no label":            {with("colour", "NotIn"), exactly("lan-port"), ""},
		"Exists":                     {with("team", "Exists"), exactly("lan-port"), ""},
		"Exists, no label":           {with("colour", "Exists"), exactly("lan-port"), wrongNamespace},
		"DoesNotExist":               {with("team", "DoesNotExist"), exactly("lan-port"), wrongNamespace},
		"DoesNotExist, no label":     {with("colour", "DoesNotExist"), exactly("lan-port"), ""},
	} {
		for kind, spec := range map[string]string{"ResourceClaim": test.claim, "ResourceClaimTemplate": "{spec: " +
			test.claim + "}"} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				e := newEvaluation(t, find[*admissionregistration.ValidatingAdmissionPolicy](t, "claims.yaml"),
					created(t, kind, spec))
				e.params = &unstructured.Unstructured{Object: decode(t, []byte(test.topology))}
				e.namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apps",
					Labels: map[string]string{"team": "ai", "tier": "1"}}}
				var got []string
				if e.matches() {
					got = e.refusals()
				}
				if test.want == "" && len(got) > 0 || test.want != "" &&
					(len(got) != 1 || !strings.Contains(got[0], test.want)) {
					t.Errorf("rejected with %q, want %q", got, test.want)
				}
			})
		}
	}
}

// created returns a request to create a resource.k8s.io object in the namespace "apps", with the given annotations set
// to "true".
func created(t *testing.T, kind, spec string, annotations ...string) *admission.VersionedAttributes {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": "c", "namespace": "apps"},
		"spec": decode(t, []byte(spec)),
	}}
	for _, annotation := range annotations {
		object.SetAnnotations(map[string]string{annotation: "true"})
	}
	gvk := object.GroupVersionKind()
	versioned := &admission.VersionedAttributes{VersionedKind: gvk}
	versioned.VersionedObject.Set(object)
	resource := gvk.GroupVersion().WithResource(strings.ToLower(kind) + "s")
	versioned.Attributes = admission.NewAttributesRecord(object, nil, gvk, "apps", "c", resource, "", admission.Create,
		nil, false, &user.DefaultInfo{Name: "somebody"})
	return versioned
}

// TestClaimsOfExtendedResources checks that a claim that kube-scheduler generates is rejected with a message for the
// pod's author, who has not written a claim. A generated claim never sets addresses, so it is rejected if the topology
// does not assign any. Claims written by users can set addresses and are accepted.
func TestClaimsOfExtendedResources(t *testing.T) {
	const (
		pair = `{metadata: {name: pair}, spec: {steps: []}, status: {deviceClasses: [pair-a, pair-b]}}`
		half = "the extended resources of the pod request pair-b of the NetworkTopology pair, which needs all " +
			"of its devices: add to the pod the limits deviceclass.resource.kubernetes.io/pair-a"
		alone = "the extended resources of the pod request lan-b of the NetworkTopology lan, and its steps b get " +
			"addresses from claims only (ClaimParameters): name such a claim in the pod instead of these limits"
	)
	steps := func(parameters, config string) string {
		return fmt.Sprintf(`{metadata: {name: lan}, spec: {steps: [{name: a, type: macvlan}, {name: b, type: macvlan, `+
			`claimParameters: [%s], config: %s}]}, status: {deviceClasses: [lan-b]}}`, parameters, config)
	}
	for name, test := range map[string]struct{ topology, class, want string }{
		"one root of two":        {pair, "pair-b", half},
		"no addresses":           {steps("mac, ips", `{ipam: {type: static}}`), "lan-b", alone},
		"an empty list":          {steps("ips", `{ipam: {type: static, addresses: []}}`), "lan-b", alone},
		"addresses":              {steps("ips", `{ipam: {type: static, addresses: [{address: 192.0.2.1/24}]}}`), "lan-b", ""},
		"addresses as arguments": {steps("ips", `{ipam: {type: static}, args: {cni: {ips: [192.0.2.1/24]}}}`), "lan-b", ""},
		"of the runtime":         {steps("ips", `{ipam: {type: static}, runtimeConfig: {ips: [192.0.2.1/24]}}`), "lan-b", ""},
		"with a range":           {steps("ips", `{ipam: {type: host-local, subnet: 192.0.2.0/24}}`), "lan-b", ""},
		"without an IPAM plugin": {steps("mac", `{mode: bridge}`), "lan-b", ""},
		"not for claims to say":  {steps("mac", `{ipam: {type: static}}`), "lan-b", ""},
	} {
		for _, annotation := range []string{resourceapi.ExtendedResourceClaimAnnotation, "example.com/other"} {
			t.Run(name+"/"+annotation, func(t *testing.T) {
				e := newEvaluation(t, find[*admissionregistration.ValidatingAdmissionPolicy](t, "claims.yaml"),
					created(t, "ResourceClaim", fmt.Sprintf(`{devices: {requests: [{name: container-0-request-0, `+
						`exactly: {deviceClassName: %s}}]}}`, test.class), annotation))
				e.params = &unstructured.Unstructured{Object: decode(t, []byte(test.topology))}
				e.namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apps"}}
				want := test.want
				if annotation != resourceapi.ExtendedResourceClaimAnnotation {
					if want = ""; test.want == half {
						want = "the claim requests pair-b of the NetworkTopology pair, which needs all of " +
							"its devices: add a request for the DeviceClass pair-a"
					}
				}
				if !e.matches() {
					t.Fatal("the policy does not match the claim")
				}
				if got := strings.Join(e.refusals(), "; "); got != want {
					t.Errorf("the claim is rejected with %q, want %q", got, want)
				}
			})
		}
	}
}

// TestClaimsPolicyNeverBlocksOthers: claims that cannot be evaluated are admitted, as are all claims that do not use a
// topology.
func TestClaimsPolicyNeverBlocksOthers(t *testing.T) {
	policy := find[*admissionregistration.ValidatingAdmissionPolicy](t, "claims.yaml")
	binding := find[*admissionregistration.ValidatingAdmissionPolicyBinding](t, "claims.yaml")
	if *policy.Spec.FailurePolicy != admissionregistration.Ignore ||
		*binding.Spec.ParamRef.ParameterNotFoundAction != admissionregistration.AllowAction {
		t.Errorf("the policy %s can block claims of other drivers", policy.Name)
	}
	if binding.Spec.PolicyName != policy.Name || len(binding.Spec.ValidationActions) != 1 ||
		binding.Spec.ValidationActions[0] != admissionregistration.Deny {
		t.Errorf("binding of policy %s does not deny", policy.Name)
	}
}
