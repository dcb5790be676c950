package policy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
)

// expensive is an expression that stays within Kubernetes' limit for one evaluation, but takes tens of milliseconds of
// CPU time.
const expensive = "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, " +
	"[0,1,2,3,4,5,6,7,8,9].all(d, a+b+c+d >= 0))))"

// costly is an expression that stays below the per-policy limit for one device, but exceeds it for a thousand devices.
const costly = "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6].all(c, a+b+c >= 0)))"

func links(n int) discovery.Facts {
	var facts discovery.Facts
	for i := range n {
		facts.Devices = append(facts.Devices, discovery.Device{Name: discovery.IfName(fmt.Sprintf("link%04d", i)),
			Type: discovery.TypeNIC})
	}
	return facts
}

const exposed = "\nexposure: {supportedCNIPlugins: [{name: host-device, exclusive: true}]}"

// A policy that exceeds the cost limit fails without affecting other policies.
func TestExpensivePolicies(t *testing.T) {
	if err := policy.CheckSelector(expensive); err != nil {
		t.Fatalf("the expression is no longer accepted: %v", err)
	}
	for name, test := range map[string]struct {
		expression  string
		devices     int
		least, most int // bounds for the number of exposed devices
		says        string
	}{
		"immediately":     {expression: expensive, devices: 2, says: "cost"},
		"on many devices": {expression: costly, devices: 6000, least: 100, most: 5999, says: "it costs"},
		"on few devices":  {expression: costly, devices: 10, least: 10, most: 10},
	} {
		t.Run(name, func(t *testing.T) {
			list := policies(t, map[string]string{
				"costly": "selector: {cel: '" + test.expression + "'}" + exposed,
				"plain": "selector: {cel: 'true'}\nexposure: {deviceNameSuffix: -plain, supportedCNIPlugins: " +
					"[{name: host-device, exclusive: true}]}",
			})
			decision := policy.Resolve(links(test.devices), list, policy.Node{Name: "n"})
			selectors, variables := 0, 0
			for _, d := range decision.Devices {
				for _, p := range d.Personas {
					if p.Suffix == "" {
						selectors++
					} else {
						variables++
					}
				}
			}
			if selectors < test.least || selectors > test.most || variables != test.devices {
				t.Errorf("first policy exposed %d of %d devices, second policy %d", selectors, test.devices, variables)
			}
			if text := fmt.Sprint(decision.Problems); strings.Contains(text, "cost") != (test.says != "") ||
				!strings.Contains(text, test.says) {
				t.Errorf("problems = %s, want %q", text, test.says)
			}
		})
	}
}

func TestResolveEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	decision, err := new(policy.Resolver).Resolve(ctx, links(3),
		policies(t, map[string]string{"p": "selector: {cel: 'true'}" + exposed}), policy.Node{Name: "n"})
	if !errors.Is(err, context.Canceled) || len(decision.Devices) != 0 {
		t.Errorf("decision = %+v, %v, want no devices and context.Canceled", decision, err)
	}
}
