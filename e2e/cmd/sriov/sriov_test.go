package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		stdin    string
		problems []string
	}{
		"least":     {stdin: `{"deviceID": "0000:41:10.0"}`},
		"all":       {stdin: `{"deviceID": "x", "vlan": 4094, "vlanQoS": 7, "mac": "02:00:00:00:00:01", "spoofchk": "on", "trust": "off", "link_state": "auto", "max_tx_rate": 5}`},
		"VLAN 0":    {stdin: `{"deviceID": "x", "vlan": 0, "vlanQoS": 0}`},
		"no device": {stdin: `{}`, problems: []string{"deviceID"}},
		"no JSON":   {stdin: `{`, problems: []string{"decode"}},
		"out of range": {stdin: `{"deviceID": "x", "vlan": 4095, "vlanQoS": 8}`,
			problems: []string{"vlan must be", "vlanQoS must be"}},
		"no tag": {stdin: `{"deviceID": "x", "vlan": 0, "vlanQoS": 3}`, problems: []string{"needs a vlan"}},
		"words": {stdin: `{"deviceID": "x", "mac": "one", "spoofchk": "true", "trust": "yes", "link_state": "up"}`,
			problems: []string{"mac", "spoofchk", "trust", "link_state"}},
		"runtime's address": {stdin: `{"deviceID": "x", "mac": "02:00:00:00:00:01", "runtimeConfig": {"mac": "bad"}}`,
			problems: []string{"mac"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(test.stdin))
			if (err != nil) != (len(test.problems) > 0) {
				t.Fatalf("error = %v, want error: %v", err, len(test.problems) > 0)
			}
			for _, problem := range test.problems {
				if !strings.Contains(err.Error(), problem) {
					t.Errorf("error %q does not contain %q", err, problem)
				}
			}
		})
	}
}

func newPlugin(t *testing.T) *plugin {
	t.Helper()
	return &plugin{state: t.TempDir(), pci: t.TempDir()}
}

// While the namespace that has claimed a function exists, no other namespace can claim the function. When the namespace
// is destroyed, the claim is released.
func TestClaim(t *testing.T) {
	p := newPlugin(t)
	const holder = "/proc/self/ns/net"
	if err := p.claim("vf", holder); err != nil {
		t.Fatal(err)
	}
	if err := p.claim("vf", "/run/netns/other"); err == nil ||
		!strings.Contains(err.Error(), "already allocated: to "+holder) {
		t.Errorf("error for a claimed function = %v, want already allocated", err)
	}
	if err := p.release("vf"); err != nil {
		t.Fatal(err)
	}
	if err := p.release("vf"); err != nil {
		t.Errorf("releasing the function twice failed: %v", err)
	}
	for range 2 {
		if err := p.claim("vf", filepath.Join(t.TempDir(), "gone")); err != nil {
			t.Errorf("cannot claim a function that was claimed by a missing namespace: %v", err)
		}
	}
}

func TestRecord(t *testing.T) {
	p := newPlugin(t)
	args := &skel.CmdArgs{ContainerID: "c", IfName: "net1"}
	if r, err := p.load(args); r != nil || err != nil {
		t.Fatalf("before ADD, load returned %+v, %v; want no record", r, err)
	}
	want := &record{Stdin: []byte(`{"deviceID":"vf","vlan":5}`), Settings: settings{VLAN: 3, Trust: true}, Link: "eth2",
		MAC: "02:00:00:00:00:01"}
	if err := p.save(args, want); err != nil {
		t.Fatal(err)
	}
	have, err := p.load(args)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("record (-want +have):\n%s", diff)
	}
	if err := os.WriteFile(p.recordPath(args), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.load(args); err == nil {
		t.Error("a damaged record caused no error")
	}
}

// These are known weaknesses of the plugin: DEL without a record does nothing, and DEL without a namespace deletes the
// record.
func TestDelThatDoesNothing(t *testing.T) {
	p := newPlugin(t)
	args := &skel.CmdArgs{ContainerID: "c", IfName: "net1", StdinData: []byte(`{"deviceID":"vf"}`)}
	if err := p.del(args); err != nil {
		t.Errorf("DEL without a record failed: %v", err)
	}
	if err := p.save(args, &record{Stdin: args.StdinData, Link: "eth2"}); err != nil {
		t.Fatal(err)
	}
	if err := p.claim("vf", "/proc/self/ns/net"); err != nil {
		t.Fatal(err)
	}
	if err := p.del(args); err != nil {
		t.Errorf("DEL without a namespace failed: %v", err)
	}
	if r, err := p.load(args); r != nil || err != nil {
		t.Errorf("the record still exists: %+v, %v", r, err)
	}
	if err := p.claim("vf", "/run/netns/other"); err == nil {
		t.Error("DEL without a namespace released the function, want it to remain claimed")
	}
}

func TestFindSaysWhatIsMissing(t *testing.T) {
	p := newPlugin(t)
	if _, err := p.find("vf"); err == nil || !strings.Contains(err.Error(), "vf is not a virtual function") {
		t.Errorf("error for a missing device = %v, want not a virtual function", err)
	}
	if err := os.MkdirAll(filepath.Join(p.pci, "vf", "physfn", "net"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := p.find("vf"); err == nil || !strings.Contains(err.Error(), "vf is not a virtual function") {
		t.Errorf("error for a physical function without a link = %v, want not a virtual function", err)
	}
}
