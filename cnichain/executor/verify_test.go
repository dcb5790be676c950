package executor

import (
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// The driver verifies that a claim's parameters take effect: if a plugin ignores them, the step fails and is rolled
// back.
func TestPluginsMustObeyClaims(t *testing.T) {
	for name, test := range map[string]struct {
		mac  string
		ips  []string
		want string
	}{
		"nothing": {},
		// the plugin may choose another prefix length
		"as it is":  {mac: "02:00:00:00:00:01", ips: []string{"10.1.0.5/16"}},
		"other MAC": {mac: "02:00:00:00:00:02", want: "does not support the capability mac"},
		"other address": {ips: []string{"10.1.0.5/24", "10.1.0.6/24"},
			want: "did not assign the address 10.1.0.6/24"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := parseResult([]byte(`{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.5/24"}]}`), "1.0.0")
			if err != nil {
				t.Fatal(err)
			}
			err = verifyClaimParams(&cnichain.PlanStep{Type: "x", MAC: test.mac, IPs: test.ips},
				"02:00:00:00:00:01", result)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
		})
	}
}
