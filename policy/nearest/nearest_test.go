package nearest

import (
	"slices"
	"testing"
)

func TestIndex(t *testing.T) {
	known := []string{"mtu", "vendor", "ifName", "driver", "river"}
	for word, want := range map[string]string{
		"mtuu": "mtu", "vendr": "vendor", "vednor": "vendor", "ifname": "ifName", "driber": "driver", "mac": "", "mt": "",
		"": "", "m": "", "vndro": "vendor", "vndo": "", "vdo": "", "rriver": "driver", "MTU": "mtu",
	} {
		if got := Index(word, known); got != slices.Index(known, want) {
			t.Errorf("the index of the word nearest to %q is %d, want that of %q", word, got, want)
		}
	}
}
