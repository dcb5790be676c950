package topology

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// checkSelector rejects expressions that contain "broken".
func checkSelector(expression string) error {
	if strings.Contains(expression, "broken") {
		return errors.New("does not compile; write it like device.attributes[\"dra.networking\"].type == \"vf\"")
	}
	return nil
}

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		topology string
		want     []string // each is contained in the problem with the same index
	}{
		"valid": {topology: bonded},
		"every problem is named": {
			topology: `
metadata: {name: ` + strings.Repeat("n", 64) + `}
spec:
  allowedNamespaces: {matchExpressions: [{key: a, operator: Near}]}
  steps:
  - {name: a, type: macvlan, selector: {cel: broken}}
  - {name: b, type: 8021q, selector: {cel: "true"}}
  - {name: c, type: macvlan}
`,
			want: []string{
				`metadata.name: Too long`,
				`spec.allowedNamespaces: Invalid value`,
				`spec.steps[2].selector.cel: Required value`,
				`spec.steps[0].selector.cel: Invalid value: "broken": does not compile`,
				`spec.steps[1].type: Invalid value: "8021q": no device can advertise this plugin`,
			},
		},
		"contracts come last": {
			topology: `
metadata: {name: a}
spec:
  steps:
  - {name: a, type: macvlan, selector: {cel: broken}, config: {mut: 1}}
`,
			want: []string{`spec.steps[0].selector.cel: Invalid value`,
				`spec.steps[0].config.mut: Invalid value: macvlan has no parameter`},
		},
		"a number in quotes": {
			topology: `
metadata: {name: a}
spec:
  steps:
  - {name: a, type: macvlan, selector: {cel: 'device.attributes["dra.networking"].mtu > "9000"'}}
`,
			want: []string{"spec.steps[0].selector.cel: Invalid value: " +
				"\"device.attributes[\\\"dra.networking\\\"].mtu > \\\"9000\\\"\": mtu is a number, compared with"},
		},
		"derived steps have no selector to compile": {
			topology: `
metadata: {name: a}
spec:
  steps:
  - {name: a, type: macvlan, selector: {cel: "true"}}
  - {name: b, type: tuning, dependOn: [a], selector: {cel: broken}}
`,
			want: []string{`spec.steps[1].selector: Forbidden`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			problems, breaches := Validate(parse(t, test.topology), cnichain.DefaultSchemas(), checkSelector)
			problems = append(problems, breaches...)
			var got []string
			for i, problem := range problems {
				text := problem.Error()
				if i < len(test.want) && strings.HasPrefix(text, test.want[i]) {
					text = test.want[i]
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("wrong problems (-want +got):\n%s", diff)
			}
		})
	}
}

// A topology that was accepted before types were compared must keep working, so a mismatch is a breach, not a problem.
func TestMismatchesAreBreaches(t *testing.T) {
	const quoted = `
metadata: {name: a}
spec: {steps: [{name: a, type: macvlan, selector: {cel: 'device.attributes["dra.networking"].mtu > "9000"'}}]}
`
	if problems, breaches := Validate(parse(t, quoted), cnichain.DefaultSchemas(), checkSelector); len(problems) > 0 ||
		len(breaches) != 1 {
		t.Errorf("got problems %v, breaches %v, want only one breach", problems, breaches)
	}
}
