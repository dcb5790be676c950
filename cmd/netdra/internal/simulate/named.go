package simulate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// addNamed reads the claims and templates that pods in the files reference but no file contains. It gets each by name,
// because users who may create pods in a namespace often lack permission to list claims. Objects that do not exist are
// reported in the answer for the pod.
func (l *liveCluster) addNamed(ctx context.Context, m *model) error {
	m.clusterAsked = true
	for _, pod := range m.pods() {
		for i := range pod.Spec.ResourceClaims {
			reference := &pod.Spec.ResourceClaims[i]
			template, claim := templateAndClaim(reference)
			var err error
			kind, name := "ResourceClaimTemplate", template
			switch {
			case template != "" && find[*resourceapi.ResourceClaimTemplate](m, pod, template) == nil:
				var got *resourceapi.ResourceClaimTemplate
				got, err = l.Resource.ResourceClaimTemplates(namespaceOf(pod)).Get(ctx, template, metav1.GetOptions{})
				if err == nil {
					m.named = append(m.named, got)
				}
			case claim != "" && m.claim(pod, claim) == nil:
				var got *resourceapi.ResourceClaim
				kind, name = "ResourceClaim", claim
				got, err = l.Resource.ResourceClaims(namespaceOf(pod)).Get(ctx, claim, metav1.GetOptions{})
				if err == nil {
					m.named = append(m.named, got)
				}
			}
			if err != nil && !apierrors.IsNotFound(err) {
				return cannotGetNamed(pod, kind, name, err)
			}
		}
	}
	return nil
}

func cannotGetNamed(pod *corev1.Pod, kind, name string, err error) error {
	err = fmt.Errorf("cannot simulate pod %s: cannot get its %s %s: %w", fullName(pod), kind, name, err)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; give it with -f, or ask for the right to get it", err)
	}
	return err
}

// templateAndClaim returns the template name and the claim name in a pod's reference. At most one of them is set.
func templateAndClaim(reference *corev1.PodResourceClaim) (template, claim string) {
	return ptr.Deref(reference.ResourceClaimTemplateName, ""), ptr.Deref(reference.ResourceClaimName, "")
}
