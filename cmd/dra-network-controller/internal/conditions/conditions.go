package conditions

import (
	"fmt"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
)

// Reasons for the condition Accepted.
const (
	// ReasonValid means that the object has no problems.
	ReasonValid = "Valid"
	// ReasonValidWithRemarks means that the object has no problems, but that there are remarks for its author.
	ReasonValidWithRemarks = "ValidWithRemarks"
	// ReasonInvalid means that the object has problems.
	ReasonInvalid = "Invalid"
)

// Accepted is the condition type. All kinds in the API packages use it.
const Accepted = "Accepted"

const (
	// maxMessage is the API server's limit for a condition's message. Here, it is applied to bytes, which is stricter.
	maxMessage = 32 * 1024
	// maxProblem limits the text of a single problem, so that a huge value does not crowd out the other problems.
	maxProblem = 2 * 1024
	// maxValue limits how much of a rejected value is repeated in a message.
	maxValue = 160
)

// Of returns the condition Accepted: False with all problems if there are any, otherwise True with the summary and the
// remarks. LastTransitionTime is not set: meta.SetStatusCondition keeps the old time as long as the status stays the
// same, so an unchanged condition does not cause a write.
func Of(generation int64, summary string, problems field.ErrorList, remarks ...string) metav1.Condition {
	condition := metav1.Condition{
		Type:               Accepted,
		Status:             metav1.ConditionTrue,
		ObservedGeneration: generation,
		Reason:             ReasonValid,
		Message:            Bound(summary),
	}
	switch {
	case len(problems) > 0:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, ReasonInvalid, Describe(problems)
	case len(remarks) > 0:
		condition.Reason, condition.Message = ReasonValidWithRemarks, Bound(summary+"; but "+
			enumerate("remark", remarks))
	}
	return condition
}

// Describe formats problems on one line: "2 problems: (1) spec.a: ...; (2) spec.b: ...".
func Describe(problems field.ErrorList) string {
	var texts []string
	for _, problem := range problems {
		texts = append(texts, Cut(oneLine(shortened(problem).Error()), maxProblem))
	}
	return enumerate("problem", texts)
}

// enumerate numbers the texts and joins as many of them as fit into a condition on one line. If there is only one text,
// it is returned unchanged: it is neither numbered nor shortened.
func enumerate(what string, texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%d %ss: ", len(texts), what)
	for i, text := range texts {
		next := fmt.Sprintf("(%d) %s", i+1, text)
		if i > 0 {
			next = "; " + next
		}
		rest := fmt.Sprintf("; and %d more: fix these first", len(texts)-i)
		if line.Len()+len(next)+len(rest) > maxMessage {
			line.WriteString(rest)
			break
		}
		line.WriteString(next)
	}
	return line.String()
}

func shortened(problem *field.Error) *field.Error {
	short := *problem
	if value, isText := short.BadValue.(string); isText {
		short.BadValue = Cut(value, maxValue)
	}
	return &short
}

// Causes returns one cause per problem, including the field, as the API server does for rejected objects. Their total
// size is limited to roughly the size of a condition. kubectl prints each cause on its own line.
func Causes(problems field.ErrorList) []metav1.StatusCause {
	var causes []metav1.StatusCause
	size := 0
	for i, problem := range problems {
		cause := metav1.StatusCause{Type: metav1.CauseType(problem.Type), Field: problem.Field,
			Message: Cut(oneLine(shortened(problem).ErrorBody()), maxProblem)}
		if size += len(cause.Message) + len(cause.Field); size > maxMessage {
			return append(causes, metav1.StatusCause{
				Message: fmt.Sprintf("and %d more: fix these first", len(problems)-i)})
		}
		causes = append(causes, cause)
	}
	return causes
}

// oneLine joins the lines of text, because tables need a single line. It drops the lines in which CEL repeats the
// expression and marks the position with a caret, because CEL also reports the line and column.
func oneLine(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, " | ") {
			_, line, _ = strings.Cut(line, "^")
		}
		kept = append(kept, strings.Fields(line)...)
	}
	return strings.ReplaceAll(strings.Join(kept, " "), " ; ", "; ")
}

// WithHint appends a kubectl command and its purpose to a condition's message. The hint always fits, because the
// preceding message is shortened if necessary.
func WithHint(condition metav1.Condition, command, shows string) metav1.Condition {
	hint := fmt.Sprintf("; %q %s", command, shows)
	condition.Message = Cut(condition.Message, maxMessage-len(hint)) + hint
	return condition
}

// Bound shortens a message to the maximum length of a condition message.
func Bound(message string) string { return Cut(message, maxMessage) }

// Cut shortens text to at most size bytes, at a character boundary, and ends shortened text with "...". size must not
// be smaller than the length of that mark.
func Cut(text string, size int) string {
	const mark = "..."
	if len(text) <= size {
		return text
	}
	end := size - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// maxEvent is the maximum number of bytes that are copied from a condition's message to an event.
const maxEvent = 900

// EmitEvents emits an event for each of an object's conditions that starts or stops reporting a problem, or reports a
// different problem. No event is emitted for a new object without problems. before contains the previous conditions,
// and written contains the conditions that were just written. The events API rejects notes longer than 1,024 bytes, and
// package events merely logs the rejection, so messages are shortened to maxEvent.
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
		recorder.Eventf(object, nil, severity, now.Reason, "Reconcile", "%s: %s", now.Type, Cut(now.Message, maxEvent))
	}
}
