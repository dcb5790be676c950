package exposure

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// Accepted returns the condition for a policy, with its problems or with its effect and remarks.
func Accepted(p *v1alpha1.DeviceExposurePolicy) metav1.Condition {
	summary := "the policy exposes the devices that it selects"
	if p.Spec.Action == v1alpha1.ActionExclude {
		summary = "the policy hides the devices that it selects"
	}
	problems, remarks := policy.Check(p)
	condition := conditions.Of(p.Generation, summary, problems, remarks...)
	if meanwhile := policy.UntilCorrected(p); meanwhile != "" {
		condition.Message = conditions.Bound(condition.Message + "; " + meanwhile)
	}
	return conditions.WithHint(condition,
		fmt.Sprintf("kubectl netdra policies list %s --all-nodes", p.Name), "shows its effect on each node")
}

// Plugins returns the CNI plugins in a policy, in the order of the spec.
func Plugins(p *v1alpha1.DeviceExposurePolicy) []string {
	if p.Spec.Exposure == nil {
		return nil
	}
	var names []string
	for i := range p.Spec.Exposure.SupportedCNIPlugins {
		names = append(names, p.Spec.Exposure.SupportedCNIPlugins[i].Name)
	}
	return names
}

// Reconciler returns a keeper for the condition Accepted on every DeviceExposurePolicy. The client reads through a
// cache.
func Reconciler(api client.Client) *conditions.Keeper[*v1alpha1.DeviceExposurePolicy] {
	return &conditions.Keeper[*v1alpha1.DeviceExposurePolicy]{
		Client: api, Kind: "DeviceExposurePolicy", Accepted: Accepted,
		New:        func() *v1alpha1.DeviceExposurePolicy { return &v1alpha1.DeviceExposurePolicy{} },
		Conditions: func(p *v1alpha1.DeviceExposurePolicy) *[]metav1.Condition { return &p.Status.Conditions },
	}
}
