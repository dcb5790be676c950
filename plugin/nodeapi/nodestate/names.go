package nodestate

import "encoding/json"

// Some fields had different JSON names in earlier versions. Both names are written, so that an earlier netdra works
// with a newer driver, and both are accepted on reading.

// stateFields and claimFields have the same fields as State and Claim, but not the methods below, which would otherwise
// call themselves.
type (
	stateFields State
	claimFields Claim
)

type stateOnWire struct {
	stateFields
	Heard bool `json:"heard"` // Synced
}

type claimOnWire struct {
	claimFields
	Forsaken bool `json:"forsaken,omitempty"` // Unused
}

// MarshalJSON also writes Synced under its earlier name.
func (s State) MarshalJSON() ([]byte, error) {
	return json.Marshal(stateOnWire{stateFields: stateFields(s), Heard: s.Synced})
}

// UnmarshalJSON also reads Synced under its earlier name.
func (s *State) UnmarshalJSON(data []byte) error {
	var wire stateOnWire
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*s = State(wire.stateFields)
	s.Synced = s.Synced || wire.Heard
	return nil
}

// MarshalJSON also writes Unused under its earlier name.
func (c Claim) MarshalJSON() ([]byte, error) {
	return json.Marshal(claimOnWire{claimFields: claimFields(c), Forsaken: c.Unused})
}

// UnmarshalJSON also reads Unused under its earlier name.
func (c *Claim) UnmarshalJSON(data []byte) error {
	var wire claimOnWire
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*c = Claim(wire.claimFields)
	c.Unused = c.Unused || wire.Forsaken
	return nil
}
