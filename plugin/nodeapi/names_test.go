package nodeapi

import "testing"

func TestSpecNamesAreParsed(t *testing.T) {
	const uid = "0f3c9f1e-5c57-4b52-9d3e-6d1b3a9f6c10"
	for name, want := range map[string]string{
		GateName(uid):              GateSpec,
		GateName(uid) + Suspended:  GateSpec,
		MetadataName(uid, "net"):   MetadataSpec,
		"/run/" + GateName(uid):    GateSpec,
		"nvidia.com-" + uid:        NoSpec,
		"dra.networking-" + uid:    NoSpec,
		".dra.networking-123.json": NoSpec,
	} {
		kind, got := ParseSpecName(name)
		if kind != want || want != NoSpec && got != uid {
			t.Errorf("%s: got kind %q of claim %q, want kind %q", name, kind, got, want)
		}
	}
}
