package v1alpha1

import (
	"cmp"
	gojson "encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/json"
)

// maxNesting is the maximum nesting depth at which a parameter is still decoded. All valid parameters are nested less
// deeply.
const maxNesting = 64

// UnmarshalJSON decodes a parameter and never fails. The CRD does not validate nested parameters, because Kubernetes
// schemas cannot recurse, so the API server accepts {"items": {"type": -1}}. A decoding error would make the whole list
// unreadable, and no driver would start. Values that cannot be decoded are recorded in Unreadable, and unknown fields
// in Unknown; validation then rejects the object.
func (p *Parameter) UnmarshalJSON(data []byte) error {
	type plain Parameter // has no UnmarshalJSON, which would call itself
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

// nesting returns the maximum nesting depth of objects and arrays in a JSON document.
func nesting(data []byte) int {
	deepest, depth, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++ // an escaped quote does not terminate the string
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
