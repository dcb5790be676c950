package conditions

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// maxEvent limits the part of a condition's message that is copied to an event, in bytes.
const maxEvent = 900

// EmitEvents emits an event for each written condition of an object that starts or stops reporting a problem, or
// reports a different one. A new object without problems gets no event. before contains the object's previous
// conditions, and written contains the current ones. The events API rejects notes with more than 1,024 bytes, which
// package events only logs, so messages are shortened to maxEvent.
func EmitEvents(recorder events.EventRecorder, object runtime.Object, before, written []metav1.Condition) {
	for i := range written {
		now := &written[i]
		old := meta.FindStatusCondition(before, now.Type)
		severity := corev1.EventTypeWarning
		if now.Status == metav1.ConditionTrue {
			severity = corev1.EventTypeNormal
		}
		wasWell := old == nil || old.Status == metav1.ConditionTrue
		asBefore := old != nil && old.Status == now.Status && old.Reason == now.Reason
		if asBefore || wasWell && severity == corev1.EventTypeNormal {
			continue
		}
		recorder.Eventf(object, nil, severity, now.Reason, "Reconcile", "%s: %s", now.Type,
			cutBeforeHint(now.Message, maxEvent))
	}
}
