package v1alpha1

import (
	"cmp"
	gojson "encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/json"
)

// maxNesting bounds how deep the objects of a parameter are that is read: more than any that is accepted has.
const maxNesting = 64

// UnmarshalJSON decodes a parameter and never fails. The CRD does not validate nested parameters, because Kubernetes
// schemas cannot recurse, so the API server stores {"items": {"type": -1}}. A decoding error would make the whole list
// unreadable, and no driver would start. Values that cannot be decoded are in Unreadable and unknown fields in Unknown,
// and the object is rejected because of them.
func (p *Parameter) UnmarshalJSON(data []byte) error {
	type plain Parameter // without this method
	*p = Parameter{}
	if nesting(data) > maxNesting {
		p.Unreadable = fmt.Sprintf("is nested more than %d times", maxNesting)
		return nil
	}
	unknown, err := json.UnmarshalStrict(data, (*plain)(p), json.DisallowUnknownFields)
	if err != nil {
		*p = Parameter{Unreadable: err.Error()}
		if mistyped := (*gojson.UnmarshalTypeError)(nil); errors.As(err, &mistyped) {
			p.Unreadable = fmt.Sprintf("%s has a value of the wrong type: %s", cmp.Or(mistyped.Field, "it"),
				mistyped.Value)
		}
	}
	for _, problem := range unknown {
		p.Unknown = append(p.Unknown, problem.Error())
	}
	return nil
}

// nesting returns the depth of the objects in a JSON text.
func nesting(data []byte) int {
	deepest, depth, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++ // an escaped quote does not end the string
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}
