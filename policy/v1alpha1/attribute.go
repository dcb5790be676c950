package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// UnmarshalJSON reads a bare string, integer or boolean.
func (v *AttributeValue) UnmarshalJSON(data []byte) error {
	*v = AttributeValue{}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	switch value := value.(type) {
	case nil:
		return nil
	case string:
		v.String = &value
		return nil
	case bool:
		v.Bool = &value
		return nil
	case json.Number:
		if integer, err := value.Int64(); err == nil {
			v.Int = &integer
			return nil
		}
	}
	return fmt.Errorf("an attribute value must be a string, an integer or a boolean, not %s", data)
}
