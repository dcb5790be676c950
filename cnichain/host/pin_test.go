package host

import (
	"testing"
	"time"
)

// Files from other components are ignored, even if their names have the same prefix.
func TestPinNames(t *testing.T) {
	const id = "3f9a8c1b2d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8"
	first := PinName(id, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	second := PinName(id, time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC))
	if first == second || first != "dra-3f9a8c1b2d4e5f60718293a4b5c6d7e8.dfct6ww35s00" {
		t.Errorf("wrong pin names: %s and %s", first, second)
	}
	for name, ours := range map[string]bool{
		first: true, second + ".standin": true, PinName("a-0", time.Unix(1000, 0)): true,
		"dra-lab": false, "dra-lab.standin": false, "dra-.dk1na4tsdn28": false, "dra-lab.net": false,
		"cni-5f.dk1na4tsdn28": false, "dra-x.not~a~number": false,
	} {
		if IsPinName(name) != ours {
			t.Errorf("IsPinName(%q) = %v", name, !ours)
		}
	}
	if !IsPinOf("/run/netns/"+first+".return", first) || PinOf(first+".standin") != first {
		t.Error("the placeholder and return namespaces are not recognized as belonging to the pin")
	}
	if !IsPinOf("/run/netns/"+first+".standin", "/var/run/netns/"+first) || IsPinOf(second, first) {
		t.Error("a file is attributed to the wrong pin")
	}
}
