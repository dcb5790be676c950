package conditions

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestOf(t *testing.T) {
	path := field.NewPath("spec", "steps").Index(0)
	tests := map[string]struct {
		problems field.ErrorList
		remarks  []string
		want     metav1.Condition
	}{
		"no problem": {
			want: metav1.Condition{Type: "Accepted", Status: "True", ObservedGeneration: 7, Reason: "Valid",
				Message: "fine"},
		},
		"one remark": {
			remarks: []string{"a has no effect: remove it"},
			want: metav1.Condition{Type: "Accepted", Status: "True", ObservedGeneration: 7, Reason: "ValidWithRemarks",
				Message: "fine; but a has no effect: remove it"},
		},
		"two remarks": {
			remarks: []string{"a has no effect: remove it", "b neither"},
			want: metav1.Condition{Type: "Accepted", Status: "True", ObservedGeneration: 7, Reason: "ValidWithRemarks",
				Message: "fine; but 2 remarks: (1) a has no effect: remove it; (2) b neither"},
		},
		"one problem, and so no remarks": {
			remarks:  []string{"a has no effect: remove it"},
			problems: field.ErrorList{field.Required(path.Child("name"), "give the step a name")},
			want: metav1.Condition{Type: "Accepted", Status: "False", ObservedGeneration: 7, Reason: "Invalid",
				Message: "spec.steps[0].name: Required value: give the step a name"},
		},
		"problem that CEL draws": {
			problems: field.ErrorList{field.Invalid(path.Child("selector", "cel"), "a && b",
				"compilation failed: ERROR: <input>:1:6: undeclared reference to 'b'\n | a && b\n | .....^; use a")},
			want: metav1.Condition{Type: "Accepted", Status: "False", ObservedGeneration: 7, Reason: "Invalid",
				Message: `spec.steps[0].selector.cel: Invalid value: "a && b": compilation failed: ERROR: ` +
					`<input>:1:6: undeclared reference to 'b'; use a`},
		},
		"two problems": {
			problems: field.ErrorList{
				field.Required(path.Child("name"), "give the step a name"),
				field.Invalid(path.Child("type"), "/bin/sh", "must be a bare file name"),
			},
			want: metav1.Condition{Type: "Accepted", Status: "False", ObservedGeneration: 7, Reason: "Invalid",
				Message: `2 problems: (1) spec.steps[0].name: Required value: give the step a name; ` +
					`(2) spec.steps[0].type: Invalid value: "/bin/sh": must be a bare file name`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Of(7, "fine", test.problems, test.remarks...)); diff != "" {
				t.Errorf("wrong condition (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDescribeFitsAndKeepsTheAdvice(t *testing.T) {
	var problems field.ErrorList
	for i := range 500 {
		problems = append(problems, field.Invalid(field.NewPath("spec").Index(i), strings.Repeat("ä", 100_000),
			"use another value"))
	}
	message := Describe(problems)
	if len(message) > maxMessage {
		t.Errorf("the message has %d bytes, but a condition holds at most %d", len(message), maxMessage)
	}
	if !utf8.ValidString(message) {
		t.Error("the message was cut in the middle of a character")
	}
	causes := Causes(problems)
	if last := causes[len(causes)-1]; last.Field != "" ||
		last.Message != fmt.Sprintf("and %d more: fix these first", len(problems)-len(causes)+1) {
		t.Errorf("%d causes end with %+v, want a final cause that counts the rest", len(causes), last)
	}
	shown := strings.Count(message, "use another value")
	if want := fmt.Sprintf("; and %d more: fix these first", len(problems)-shown); shown < 50 ||
		!strings.HasSuffix(message, want) {
		t.Errorf("the message shows %d problems and ends with %q, want it to end with %q", shown,
			message[len(message)-60:], want)
	}
}

// A condition contains the complete hint, no matter how long the preceding message is.
func TestHintsAreNotCut(t *testing.T) {
	hint := `; "kubectl get ntopo x" shows more`
	for _, text := range []string{"short", strings.Repeat("é", maxMessage)} {
		got := WithHint(metav1.Condition{Message: text}, "kubectl get ntopo x", "shows more").Message
		if !strings.HasSuffix(got, hint) || len(got) > maxMessage || !utf8.ValidString(got) {
			t.Errorf("the condition has %d bytes and ends with %q, want the complete hint", len(got), got[len(got)-40:])
		}
	}
}

func TestBound(t *testing.T) {
	if got := Bound(strings.Repeat("€", maxMessage)); len(got) > maxMessage || !utf8.ValidString(got) ||
		!strings.HasSuffix(got, "...") {
		t.Errorf("Bound returned %d bytes that end with %q, want \"...\"", len(got), got[len(got)-8:])
	}
	if got := Bound("short"); got != "short" {
		t.Errorf("Bound changed a short message to %q", got)
	}
}
