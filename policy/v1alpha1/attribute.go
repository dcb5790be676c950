package v1alpha1

import (
	"bytes"
	"encoding/json"
)

// MarshalJSON writes the bare value.
func (v AttributeValue) MarshalJSON() ([]byte, error) {
	switch {
	case v.String != nil:
		return json.Marshal(*v.String)
	case v.Int != nil:
		return json.Marshal(*v.Int)
	case v.Bool != nil:
		return json.Marshal(*v.Bool)
	}
	return []byte("null"), nil
}

// UnmarshalJSON reads a bare string, integer or boolean. For anything else, it sets no field and returns no error;
// Validate then rejects the value. The CRD schema cannot reject such a value, and if a single policy failed to decode,
// listing policies would fail altogether.
func (v *AttributeValue) UnmarshalJSON(data []byte) error {
	*v = AttributeValue{}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	switch value := value.(type) {
	case string:
		v.String = &value
	case bool:
		v.Bool = &value
	case json.Number:
		if integer, err := value.Int64(); err == nil {
			v.Int = &integer
		}
	}
	return nil
}
