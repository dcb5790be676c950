package policy_test

import (
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus"
)

func TestCheckAcceptsWithRemarks(t *testing.T) {
	for _, c := range corpus.Valid(t) {
		p, err := c.Policy(t)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		problems, remarks := policy.Check(p)
		if len(problems) > 0 {
			t.Errorf("%s: %v", c.Name, problems)
		}
		if len(remarks) != len(c.Remarks) {
			t.Errorf("%s: got remarks %q, want %q", c.Name, remarks, c.Remarks)
			continue
		}
		for i, want := range c.Remarks {
			if !strings.Contains(remarks[i], want) || !strings.Contains(remarks[i], ": ") {
				t.Errorf("%s: got remark %q, want ... %s ...: FIX", c.Name, remarks[i], want)
			}
		}
	}
}

// TestCheckRefuses checks every invalid policy, including policies that only a compiler can reject.
func TestCheckRefuses(t *testing.T) {
	for _, c := range corpus.Invalid(t) {
		t.Run(c.Name, func(t *testing.T) {
			if c.Undecodable {
				return
			}
			p, err := c.Policy(t)
			if err != nil {
				t.Fatal(err)
			}
			problems, remarks := policy.Check(p)
			if len(problems) != 1 || len(remarks) > 0 {
				t.Fatalf("got problems %v and remarks %q, want one problem", problems, remarks)
			}
			text := problems[0].Error()
			if problems[0].Field != c.Field || !strings.Contains(text, c.Reason) || !strings.Contains(text, c.Fix) {
				t.Errorf("got %s, want %s: ... %s ... %s ...", text, c.Field, c.Reason, c.Fix)
			}
		})
	}
}

// If an invalid policy is stored anyway, it must not offer anything that its author may have wanted to hide, and must
// not affect other policies.
func TestNodesOfInvalidPolicies(t *testing.T) {
	for _, c := range corpus.Invalid(t) {
		t.Run(c.Name, func(t *testing.T) {
			if c.Undecodable {
				return
			}
			p, err := c.Policy(t)
			if err != nil {
				t.Fatal(err)
			}
			facts := facts()
			facts.Devices = append(facts.Devices, facts.Devices[0])
			facts.Devices[2].Name, facts.Devices[2].Type, facts.Devices[2].Kind = "veth1", "veth", "veth"
			other := policies(t, map[string]string{"other": expose("true", "-other", 100)})
			decision := policy.Resolve(facts, append(other, *p), policy.Node{Name: "n"})
			if got := whatBecameOf(decision); got != c.Stored {
				t.Errorf("effect of the policy on nodes: it %s, want: it %s\n%s", words(got), words(c.Stored),
					text(decision))
			}
			if c.Stored != corpus.ExposesMatches &&
				(len(decision.Problems) == 0 || decision.Problems[0].Policy != corpus.Name) {
				t.Errorf("the node reported no problem with the policy:\n%s", text(decision))
			}
		})
	}
}

func words(s corpus.Stored) string {
	if s == corpus.ExposesNothing {
		return "exposes nothing"
	}
	return string(s)
}

// whatBecameOf returns the effect of a policy from the corpus when another policy exposes everything.
func whatBecameOf(decision policy.Decision) corpus.Stored {
	elsewhere, hidden, failed := 0, 0, 0
	for _, d := range decision.Devices {
		for _, p := range d.Personas {
			if p.Policy == corpus.Name {
				return corpus.ExposesMatches
			}
			elsewhere++
		}
		for _, r := range d.Reasons {
			if r.Policy == corpus.Name && r.Outcome == policy.Failed {
				failed++
			}
			if r.Policy == corpus.Name && r.Outcome == policy.Excludes {
				hidden++
			}
		}
	}
	switch all := len(decision.Devices); {
	case elsewhere == all:
		return corpus.ExposesNothing
	case elsewhere == 0 && failed == all:
		return corpus.HidesEverything
	case elsewhere == all-hidden:
		return corpus.HidesMatches
	}
	return "does something else"
}

// The result depends on whether a pod's veth is selected because of its type.
func TestVethsByType(t *testing.T) {
	for expression, want := range map[string]string{
		`@type == "veth"`:                            "refused",
		`@kind == "veth" && @mtu == 1500`:            "refused",
		`@type in ["nic", "veth"]`:                   "refused",
		`@type == "veth" && @masterBridge != ""`:     "refused",
		`@type == "veth" && @masterKind == "bridge"`: "refused",
		`@type == "veth" && @ifName == "uplink0"`:    "",
		`@ifName == "uplink0"`:                       "",
		`@type == "nic"`:                             "",
		`@type != "pf"`:                              "remark",
		`@carrier`:                                   "remark",
		`@type == "veth" ? @ifName == "uplink0" : @type == "bridge"`: "",
	} {
		p := policies(t, map[string]string{"p": expose(expression, "", 1)})[0]
		problems, remarks := policy.Check(&p)
		got := ""
		switch {
		case len(problems) > 0:
			got = "refused"
		case len(remarks) > 0:
			got = "remark"
		}
		if got != want {
			t.Errorf("%s: got %q, want %q (problems %v, remarks %q)", expression, got, want, problems, remarks)
		}
		p.Spec.Action, p.Spec.Exposure = v1alpha1.ActionExclude, nil
		if problems, remarks := policy.Check(&p); len(problems) > 0 || len(remarks) > 0 {
			t.Errorf("%s in an exclude policy: problems %v, remarks %q, want none", expression, problems, remarks)
		}
	}
}
