package deploy_test

import (
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"
)

const nodeAccount = "system:serviceaccount:dra-network:dra-network-driver"

// TestNodesWriteTheirOwnSlices evaluates the admission policy for slices with the API server's own compiler.
func TestNodesWriteTheirOwnSlices(t *testing.T) {
	slice := func(driver, node string) *resourceapi.ResourceSlice {
		spec := resourceapi.ResourceSliceSpec{Driver: driver, NodeName: ptr.To(node),
			Pool: resourceapi.ResourcePool{Name: node + "/eth0"}}
		if node == "" {
			spec.NodeName, spec.AllNodes = nil, ptr.To(true)
		}
		return &resourceapi.ResourceSlice{
			TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"},
			ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: spec,
		}
	}
	ours, foreign := slice("dra.networking", "n1"), slice("dra.networking", "n2")
	inPool := func(name string) *resourceapi.ResourceSlice {
		changed := ours.DeepCopy()
		changed.Spec.Pool.Name = name
		return changed
	}
	tests := map[string]struct {
		account   string
		tokenNode string
		operation admission.Operation
		object    *resourceapi.ResourceSlice
		old       *resourceapi.ResourceSlice
		want      string // the expected decision
	}{
		"create its own":   {nodeAccount, "n1", admission.Create, ours, nil, "allowed"},
		"update its own":   {nodeAccount, "n1", admission.Update, ours, ours, "allowed"},
		"delete its own":   {nodeAccount, "n1", admission.Delete, nil, ours, "allowed"},
		"create another's": {nodeAccount, "n1", admission.Create, foreign, nil, "refused"},
		"create one of all nodes": {nodeAccount, "n1", admission.Create, slice("dra.networking", ""),
			nil, "refused"},
		"take another's":      {nodeAccount, "n1", admission.Update, ours, foreign, "refused"},
		"give its own away":   {nodeAccount, "n1", admission.Update, foreign, ours, "refused"},
		"delete another's":    {nodeAccount, "n1", admission.Delete, nil, foreign, "refused"},
		"delete many at once": {nodeAccount, "n1", admission.Delete, nil, nil, "refused"},
		"create one of another driver": {nodeAccount, "n1", admission.Create, slice("gpu.example.com", "n1"),
			nil, "refused"},
		"with a token that names no node": {nodeAccount, "", admission.Create, ours, nil, "refused"},
		"no node, no node": {nodeAccount, "", admission.Create, slice("dra.networking", ""),
			nil, "refused"},
		"in another's pool":         {nodeAccount, "n1", admission.Create, inPool("n2/eth0"), nil, "refused"},
		"moved to another's pool":   {nodeAccount, "n1", admission.Update, inPool("n2/eth0"), ours, "refused"},
		"moved from another's pool": {nodeAccount, "n1", admission.Update, ours, inPool("n2/eth0"), "refused"},
		"in a pool of a node whose name begins alike": {nodeAccount, "n1", admission.Create, inPool("n10/eth0"), nil,
			"refused"},
		"in a pool without a node":      {nodeAccount, "n1", admission.Create, inPool("eth0"), nil, "refused"},
		"in a pool named as its node":   {nodeAccount, "n1", admission.Create, inPool("n1"), nil, "refused"},
		"in a pool of several segments": {nodeAccount, "n1", admission.Create, inPool("n1/eth0/a"), nil, "allowed"},
		"another account":               {"system:node:n1", "", admission.Create, foreign, nil, "not asked"},
	}
	policy := find[*admissionregistration.ValidatingAdmissionPolicy](t, "admission.yaml")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			info := &user.DefaultInfo{Name: test.account, Extra: map[string][]string{}}
			if test.tokenNode != "" {
				info.Extra["authentication.kubernetes.io/node-name"] = []string{test.tokenNode}
			}
			if got := decide(t, policy, test.operation, test.object, test.old, info); got != test.want {
				t.Errorf("got decision %s, want %s", got, test.want)
			}
		})
	}
}

// decide returns the policy's decision on a request.
func decide(t *testing.T, policy *admissionregistration.ValidatingAdmissionPolicy, operation admission.Operation,
	object, old *resourceapi.ResourceSlice, who user.Info) string {
	t.Helper()
	e := newEvaluation(t, policy, versioned(operation, object, old, who))
	switch {
	case !e.matches():
		return "not asked"
	case len(e.refusals()) == 0:
		return "allowed"
	}
	return "refused"
}

func versioned(
	operation admission.Operation, object, old *resourceapi.ResourceSlice, who user.Info,
) *admission.VersionedAttributes {
	var newObject, oldObject runtime.Object
	versioned := &admission.VersionedAttributes{VersionedKind: resourceapi.SchemeGroupVersion.WithKind("ResourceSlice")}
	if object != nil {
		newObject = object
		versioned.VersionedObject.Set(object)
	}
	if old != nil {
		oldObject = old
		versioned.VersionedOldObject.Set(old)
	}
	resource := resourceapi.SchemeGroupVersion.WithResource("resourceslices")
	versioned.Attributes = admission.NewAttributesRecord(newObject, oldObject, versioned.VersionedKind, "", "s",
		resource, "", operation, nil, false, who)
	return versioned
}

// TestAdmissionPolicyIsInForce checks that the policy denies requests, has a binding, and applies to the driver's
// account.
func TestAdmissionPolicyIsInForce(t *testing.T) {
	policy := find[*admissionregistration.ValidatingAdmissionPolicy](t, "admission.yaml")
	binding := find[*admissionregistration.ValidatingAdmissionPolicyBinding](t, "admission.yaml")
	if *policy.Spec.FailurePolicy != admissionregistration.Fail || binding.Spec.PolicyName != policy.Name ||
		len(binding.Spec.ValidationActions) != 1 || binding.Spec.ValidationActions[0] != admissionregistration.Deny {
		t.Errorf("the policy %s does not fail closed, or its binding does not deny", policy.Name)
	}
	accounts := all[interface {
		runtime.Object
		metav1.Object
	}](load(t, "node.yaml"))
	if account := accounts[0]; nodeAccount != "system:serviceaccount:"+account.GetNamespace()+":"+account.GetName() {
		t.Errorf("the driver runs as %s/%s, which the policy does not name", account.GetNamespace(), account.GetName())
	}
}
