package kerneltest

import (
	_ "embed"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

//go:embed testdata/refusals.yaml
var refusals []byte //nolint:gochecknoglobals // embedded files require a global variable

// Validation rejects exactly those configurations that the real plugins reject.
func TestRealRefusals(t *testing.T) {
	if !onMachineWithOwn(t) {
		return
	}
	var cases []struct {
		Name  string
		Steps []v1alpha1.Step
		Error string // the plugin's error; empty if it accepts the configuration
	}
	if err := yaml.UnmarshalStrict(refusals, &cases); err != nil {
		t.Fatal(err)
	}
	for _, test := range cases {
		t.Run(test.Name, func(t *testing.T) {
			l := newRealLab(t, nil)
			l.uplink("up0")
			l.bridge("br0")
			root := &test.Steps[0]
			device := l.shared("a", map[bool]string{true: "br0", false: "up0"}[root.Type == "bridge"])
			if root.Type == "host-device" {
				device = l.exclusive("a", "up0")
			}
			root.Selector = &v1alpha1.StepSelector{CEL: "true"}
			topology := &v1alpha1.NetworkTopology{Spec: v1alpha1.NetworkTopologySpec{Steps: test.Steps}}
			problems := cnichain.Validate(topology, cnichain.DefaultSchemas())
			if len(problems) > 1 || (len(problems) == 1) != (test.Error != "") {
				t.Errorf("wrong problems from validation: %v", problems)
			}
			steps, err := yaml.Marshal(test.Steps)
			l.must(err)
			plan := l.plan("first", string(steps), device)
			if missing := l.missingTypes(&plan); missing != "" {
				t.Skip(missing)
			}
			err = l.pod("a", plan).tryAdd()
			if (err != nil) != (test.Error != "") || err != nil && !strings.Contains(err.Error(), test.Error) {
				t.Errorf("ADD returned %v, want %q", err, test.Error)
			}
		})
	}
}
