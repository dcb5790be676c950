package nearest

import "testing"

func TestWord(t *testing.T) {
	known := []string{"mtu", "vendor", "ifName", "driver", "river"}
	for word, want := range map[string]string{
		"mtuu": "mtu", "vendr": "vendor", "vednor": "vendor", "ifname": "ifName", "driber": "driver", "mac": "", "mt": "",
		"": "", "m": "", "vndro": "vendor", "vndo": "", "vdo": "", "rriver": "driver", "MTU": "mtu",
	} {
		if got := Word(word, known); got != want {
			t.Errorf("the word nearest to %q is %q, want %q", word, got, want)
		}
	}
	if i := Index("mtuu", known); i != 0 {
		t.Errorf("index = %d, want 0", i)
	}
	if i := Index("rack", known); i != -1 {
		t.Errorf("index of an unknown word = %d, want -1", i)
	}
}
