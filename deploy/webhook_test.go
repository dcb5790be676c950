package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const webhookFile = "webhook.yaml"

// TestWebhookHoldsNothingUp: the webhook is called for the driver's kinds, and for claims that have parameters for the
// driver and were not created from a template. No request depends on the webhook's response.
func TestWebhookHoldsNothingUp(t *testing.T) {
	configuration := find[*admissionregistration.ValidatingWebhookConfiguration](t, webhookFile)
	if len(configuration.Webhooks) != 2 {
		t.Fatalf("got %d webhooks, want 2", len(configuration.Webhooks))
	}
	// For ranges, the CRD rules are sufficient, and blocks are only written by the controller.
	elsewhere := []string{"addressblocks", "addressranges"}
	var resources []string
	for _, file := range files(t, "crds/*.yaml") {
		plural := find[*apiextensions.CustomResourceDefinition](t, file).Spec.Names.Plural
		if !slices.Contains(elsewhere, plural) {
			resources = append(resources, plural)
		}
	}
	got := configuration.Webhooks[0]
	slices.Sort(got.Rules[0].Resources)
	want := admissionregistration.ValidatingWebhook{
		Name: got.Name, ClientConfig: got.ClientConfig,
		FailurePolicy: ptr.To(admissionregistration.Ignore), TimeoutSeconds: ptr.To[int32](2),
		SideEffects:             ptr.To(admissionregistration.SideEffectClassNone),
		MatchPolicy:             ptr.To(admissionregistration.Equivalent),
		AdmissionReviewVersions: []string{"v1"},
		Rules: []admissionregistration.RuleWithOperations{{
			Operations: []admissionregistration.OperationType{admissionregistration.Create,
				admissionregistration.Update},
			Rule: admissionregistration.Rule{
				APIGroups:   []string{topologyapi.GroupVersion().Group},
				APIVersions: []string{topologyapi.GroupVersion().Version},
				// The webhook is not called for status: "kind" does not cover "kind/status".
				Resources: resources, Scope: ptr.To(admissionregistration.ClusterScope),
			},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong webhook (-want +got):\n%s", diff)
	}
	claims := configuration.Webhooks[1]
	if chosen := claims.MatchConditions; len(chosen) != 2 ||
		!strings.Contains(chosen[0].Expression, `== "`+topologyapi.DriverName+`"`) ||
		!strings.Contains(chosen[1].Expression, `!("`+resourceapi.PodResourceClaimAnnotation+`" in `) {
		t.Errorf("wrong match conditions for claims: %v", chosen)
	}
	want.Name, want.MatchConditions = claims.Name, claims.MatchConditions
	want.Rules = []admissionregistration.RuleWithOperations{{
		Operations: []admissionregistration.OperationType{admissionregistration.Create},
		Rule: admissionregistration.Rule{
			APIGroups: []string{"resource.k8s.io"}, APIVersions: []string{"v1"},
			Resources: []string{"resourceclaims", "resourceclaimtemplates"},
			Scope:     ptr.To(admissionregistration.NamespacedScope),
		},
	}}
	if diff := cmp.Diff(want, claims); diff != "" {
		t.Errorf("wrong webhook for claims (-want +got):\n%s", diff)
	}
}

// TestWebhookIsReached follows the path from the configuration, through the Service, to the container's port.
func TestWebhookIsReached(t *testing.T) {
	asked := find[*admissionregistration.ValidatingWebhookConfiguration](t, webhookFile).Webhooks[0].ClientConfig
	service := find[*corev1.Service](t, webhookFile)
	pod := find[*appsv1.Deployment](t, "controller.yaml").Spec.Template
	if asked.CABundle != nil || asked.Service.Name != service.Name || asked.Service.Namespace != service.Namespace ||
		*asked.Service.Port != service.Spec.Ports[0].Port || *asked.Service.Path != "/validate" {
		t.Errorf("wrong client configuration, the API server would call service %+v", asked.Service)
	}
	for key, value := range service.Spec.Selector {
		if pod.Labels[key] != value {
			t.Errorf("the Service selects pods with %s=%s, a label that the controller's pod does not have", key, value)
		}
	}
	if !slices.Contains(pod.Spec.Containers[0].Ports,
		corev1.ContainerPort{Name: service.Spec.Ports[0].TargetPort.StrVal, ContainerPort: 9684}) {
		t.Errorf("the container has no port %v", service.Spec.Ports[0].TargetPort)
	}
	secret := find[*corev1.Secret](t, webhookFile)
	args := strings.Join(pod.Spec.Containers[0].Args, " ")
	for _, want := range []string{"--webhook-bind-address=:9684", "--webhook-certificate-secret=" + secret.Namespace +
		"/" + secret.Name} {
		if !strings.Contains(args, want) {
			t.Errorf("the controller's arguments do not contain %s: %s", want, args)
		}
	}
	if len(secret.Data)+len(secret.StringData) > 0 {
		t.Error("applying the manifest again would remove the controller's data from the Secret")
	}
}

// TestWhoReachesTheWebhook checks that the network policy restricts access only if the chart's values list allowed
// peers, and then only to the webhook's port.
func TestWhoReachesTheWebhook(t *testing.T) {
	policies := func(settings ...string) []*networkingv1.NetworkPolicy {
		_, objects := rendered(t, settings...)
		var found []*networkingv1.NetworkPolicy
		for _, object := range objects {
			if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
				found = append(found, policy)
			}
		}
		return found
	}
	if found := policies(); len(found) > 0 {
		t.Errorf("got %d NetworkPolicies by default, want none", len(found))
	}
	port := func(name string) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Port: ptr.To(intstr.FromString(name)),
			Protocol: ptr.To(corev1.ProtocolTCP)}
	}
	found := policies("webhook.from[0].ipBlock.cidr=10.0.0.4/32", "controller.metricsAddress=:9683")
	if len(found) != 1 {
		t.Fatalf("got %d NetworkPolicies, want 1", len(found))
	}
	want := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{
			MatchLabels: map[string]string{"app.kubernetes.io/name": "dra-network-controller"},
		},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{
			{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.4/32"}}},
				Ports: []networkingv1.NetworkPolicyPort{port("webhook")}},
			{Ports: []networkingv1.NetworkPolicyPort{port("health"), port("metrics")}},
		},
	}
	if diff := cmp.Diff(want, found[0].Spec); diff != "" {
		t.Errorf("wrong policy (-want +got):\n%s", diff)
	}
}
