package discovery

import "testing"

func TestParsePCIAddress(t *testing.T) {
	for text, want := range map[string]PCIAddress{
		"0000:03:00.2": "0000:03:00.2", "0000:AF:1f.7": "0000:af:1f.7", "10000:e1:00.0": "10000:e1:00.0",
		"": "", "03:00.2": "", "0000:03:00.8": "", "0000:03:00": "", "0000:03:00.2\n": "",
		"000g:03:00.2": "", "eth0": "",
	} {
		got, err := ParsePCIAddress(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}
