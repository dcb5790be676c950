package nodeclient

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// entry returns an entry for the physical function 0000:03:00.0 or for its virtual function.
func entry(name string, device discovery.Device, persona policy.Persona) draslices.Entry {
	return draslices.Entry{Name: name, Pool: "n/eth0", Device: device, Persona: persona}
}

func published() []draslices.Entry {
	pf := discovery.Device{Name: "eth0", Interface: "eth0", Type: "pf", PCIAddress: "0000:03:00.0"}
	vf := discovery.Device{Name: "eth0v0", Type: "vf", PCIAddress: "0000:03:00.2", PFAddress: pf.PCIAddress}
	shared := func(group string) policy.Persona {
		return policy.Persona{ExclusionGroup: group,
			Capacity: []policy.Capacity{{Name: "shares", Value: resource.MustParse("4")}}}
	}
	return []draslices.Entry{
		entry("eth0-ipvlan", pf, shared("l2")), entry("eth0-macvlan", pf, shared("l2")), entry("eth0-other", pf,
			shared("")),
		entry("eth0-whole", pf, policy.Persona{Exclusive: true}), entry("eth0v0", vf, policy.Persona{Exclusive: true}),
	}
}

// claimOf returns a claim that holds one device.
func claimOf(name, device string) nodestate.Claim {
	return nodestate.Claim{ClaimRecord: nodestate.ClaimRecord{
		Claim: cnichain.Claim{Namespace: "ns", Name: name, UID: name + "-uid"}, PreparedAt: time.Unix(1_700_000_000, 0),
		Plans: []cnichain.Plan{{Topology: "t"}},
		Devices: []nodestate.HeldDevice{{Pool: "n/eth0", Name: device,
			Consumed: map[resourceapi.QualifiedName]resource.Quantity{
				"dra.networking/shares": resource.MustParse("1"),
			}}},
	}}
}

// A device in use blocks only the devices that it excludes.
func TestStatesOfDevices(t *testing.T) {
	tainted := published()
	tainted[4].Spec.Taints = []resourceapi.DeviceTaint{{Value: "gone"}}
	quarantined := executor.Leftover{Reason: "busy", Attachment: executor.Attachment{Steps: []executor.StepRecord{{
		Step: cnichain.PlanStep{Device: &cnichain.Device{Pool: "n/eth0", Name: "eth0v0", PCIAddress: "0000:03:00.2",
			Exclusive: true}},
	}}}}
	elsewhere := quarantined
	elsewhere.Attachment.Steps = []executor.StepRecord{{Step: cnichain.PlanStep{Device: &cnichain.Device{Pool: "n/x",
		Name: "x", IfName: "x", Exclusive: true}}}}
	harmless := quarantined
	harmless.OnHost = true
	for name, test := range map[string]struct {
		answers nodestate.Answers
		want    []string // for eth0-ipvlan, eth0-macvlan, eth0-other, eth0-whole, eth0v0 and more
	}{
		"no claims": {nodestate.Answers{Published: published()}, []string{Free, Free, Free, Free, Free}},
		"no plugin": {nodestate.Answers{Published: published(), State: nodestate.State{CNIPlugins: []string{"tuning"}},
			Claims: []nodestate.Claim{claimOf("a", "eth0-other")}},
			[]string{Unusable, Unusable, InUse, Unusable, Unusable}},
		"macvlan": {nodestate.Answers{Published: published(),
			Claims: []nodestate.Claim{claimOf("a", "eth0-macvlan")}}, []string{Blocked, InUse, Free, Blocked, Free}},
		"no group": {nodestate.Answers{Published: published(),
			Claims: []nodestate.Claim{claimOf("a", "eth0-other")}}, []string{Free, Free, InUse, Blocked, Free}},
		"whole device": {nodestate.Answers{Published: published(),
			Claims: []nodestate.Claim{claimOf("a", "eth0-whole")}},
			[]string{Blocked, Blocked, Blocked, InUse, Blocked}},
		"virtual function": {nodestate.Answers{Published: published(),
			Claims: []nodestate.Claim{claimOf("a", "eth0v0")}}, []string{Free, Free, Free, Blocked, InUse}},
		"taint": {nodestate.Answers{Published: tainted, Claims: []nodestate.Claim{claimOf("a", "eth0v0")}},
			[]string{Free, Free, Free, Blocked, "gone"}},
		"quarantine": {nodestate.Answers{Published: published(),
			Leftovers: []executor.Leftover{quarantined, harmless}}, []string{Free, Free, Free, Free, Quarantined}},
		"not published": {nodestate.Answers{Published: published(), Leftovers: []executor.Leftover{elsewhere}},
			[]string{Free, Free, Free, Free, Free, Quarantined}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, device := range Devices(&test.answers) {
				got = append(got, device.State)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("wrong states (-want +got):\n%s", diff)
			}
		})
	}
}

// A lost interface is reported for the device. The state of an exclusive device is then "lost", while a shared device
// remains in use.
func TestLostInterfaces(t *testing.T) {
	gone := published()
	gone[4].Spec.Taints = []resourceapi.DeviceTaint{{Value: "gone"}}
	for name, test := range map[string]struct {
		published []draslices.Entry
		device    int
		want      string
	}{
		"shared":    {published(), 1, InUse},
		"exclusive": {published(), 4, Lost},
		"gone":      {gone, 4, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			held := test.published[test.device].Name
			answers := &nodestate.Answers{Published: test.published, Claims: []nodestate.Claim{claimOf("a", held)},
				Sandboxes: []nodestate.Sandbox{{
					Pod: executor.Pod{Namespace: "ns", Name: "p"}, Claims: []string{"a-uid"}, State: "ready",
					Interfaces: []nodestate.Interface{{ClaimUID: "a-uid", Pool: "n/eth0", Device: held,
						Interface: "net1", Missing: "net1"}},
				}}}
			for i, device := range Devices(answers) {
				said := strings.Contains(device.Why, "interface net1 is no longer in pod ns/p")
				if said != (i == test.device) || said && device.State != test.want {
					t.Errorf("%s has the wrong state or reason: %s: %s", device.Name, device.State, device.Why)
				}
			}
		})
	}
}

// Shared entries for the same device exclude each other only if they are in the same group.
func TestGroups(t *testing.T) {
	entries := published()
	another := entries[2]
	another.Name = "eth0-another"
	for _, other := range []*draslices.Entry{&entries[0], &entries[2]} {
		if excludes(&another, other) || excludes(other, &another) {
			t.Errorf("%s and %s must not exclude each other", another.Name, other.Name)
		}
	}
}

func TestHoldersAndCounters(t *testing.T) {
	early := claimOf("b", "eth0-macvlan")
	early.PreparedAt = time.Unix(1_600_000_000, 0)
	unknown := claimOf("c", "eth0-macvlan")
	unknown.PreparedAt = time.Time{}
	answers := &nodestate.Answers{
		Published: published(), Claims: []nodestate.Claim{early, claimOf("a", "eth0-macvlan"), unknown},
		Sandboxes: []nodestate.Sandbox{{Pod: executor.Pod{Namespace: "ns", Name: "p"}, Claims: []string{"a-uid"}},
			{Pod: executor.Pod{Namespace: "ns", Name: "refused"}, Claims: []string{"a-uid"},
				State: nodestate.SandboxEnded, Failure: "the claim is exclusive"}},
	}
	device := Devices(answers)[1]
	if want := "ns/a (pod ns/p), ns/b, ns/c"; device.HeldBy() != want {
		t.Errorf("HeldBy is %q, want %q", device.HeldBy(), want)
	}
	if want := "shares=3/4"; device.CountersText() != want {
		t.Errorf("counters are %q, want %q", device.CountersText(), want)
	}
	if !device.Since().Equal(early.PreparedAt) {
		t.Errorf("wrong start of use: %s", device.Since())
	}
}

// If many pods have lost the interface of a shared device, a single sentence reports all of them.
func TestManyPodsThatLostADevice(t *testing.T) {
	answers := &nodestate.Answers{Published: published(), Claims: []nodestate.Claim{claimOf("a", "eth0-macvlan")}}
	for _, pod := range []string{"p", "q", "r"} {
		answers.Sandboxes = append(answers.Sandboxes, nodestate.Sandbox{State: nodestate.SandboxReady,
			Pod: executor.Pod{Namespace: "ns", Name: pod}, Claims: []string{"a-uid"}, Interfaces: []nodestate.Interface{
				{ClaimUID: "a-uid", Pool: published()[1].Pool, Device: "eth0-macvlan", Missing: "net1"}}})
	}
	const want = "interface net1 is no longer in pod ns/p and in 2 others"
	if device := Devices(answers)[1]; !strings.HasPrefix(device.Why, want) || strings.Count(device.Why, "net1") != 1 {
		t.Errorf("got reason %q, want %q", device.Why, want)
	}
}

func TestStatesOfClaims(t *testing.T) {
	sandbox := func(state, failure string) nodestate.Sandbox {
		hint := ""
		if failure != "" {
			hint = "the kernel may lack it"
		}
		return nodestate.Sandbox{ID: state + failure, Pod: executor.Pod{Namespace: "ns", Name: "p"},
			Claims: []string{"a-uid"}, State: state, Failure: failure, FailureHint: hint,
			Interfaces: []nodestate.Interface{
				{ClaimUID: "a-uid", Interface: "net1"}, {ClaimUID: "other", Interface: "net2"},
			}}
	}
	stuck := sandbox("detaching", "")
	stuck.DetachFailure = "no plugin"
	if pod := podOf(&stuck, "a-uid"); pod.State != Detaching || pod.Error != "no plugin" {
		t.Errorf("wrong state or error of a pod with a failed detachment: %+v", pod)
	}
	lost := sandbox("ready", "")
	lost.Interfaces[0].Missing = "net1"
	for name, test := range map[string]struct {
		sandboxes []nodestate.Sandbox
		unused    bool
		want      string
		pods      []string
	}{
		"no sandbox yet": {nil, false, Prepared, nil},
		"pod is gone":    {nil, true, Unused, nil},
		"attaching":      {[]nodestate.Sandbox{sandbox("attaching", "")}, false, Attaching, []string{Attaching}},
		"failed":         {[]nodestate.Sandbox{sandbox("attaching", "no")}, false, Failed, []string{Failed}},
		"ended":          {[]nodestate.Sandbox{sandbox("ended", "no")}, false, Failed, []string{Failed}},
		"attached": {[]nodestate.Sandbox{sandbox("ready", "old failure")}, false, Attached,
			[]string{Attached}},
		"detaching":       {[]nodestate.Sandbox{sandbox("detaching", "")}, true, Detaching, []string{Detaching}},
		"lost":            {[]nodestate.Sandbox{lost}, false, Lost, []string{Lost}},
		"lost by one pod": {[]nodestate.Sandbox{sandbox("ready", ""), lost}, false, Lost, []string{Attached, Lost}},
		"worst state of several pods": {[]nodestate.Sandbox{sandbox("ready", ""), sandbox("attaching", "no"),
			sandbox("detaching", "")}, false, Failed, []string{Attached, Failed, Detaching}},
	} {
		t.Run(name, func(t *testing.T) {
			record := claimOf("a", "eth0v0")
			record.Unused = test.unused
			got := Claims(&nodestate.Answers{Claims: []nodestate.Claim{record}, Sandboxes: test.sandboxes})[0]
			var pods []string
			for _, pod := range got.Pods {
				pods = append(pods, pod.State)
				if pod.State == Lost && !strings.Contains(pod.Error, "interface net1 is no longer in pod ns/p") {
					t.Errorf("wrong error of a lost pod: %+v", pod)
				}
				if pod.State == Failed && pod.Error != "no; the kernel may lack it" {
					t.Errorf("unexpected pod %+v", pod)
				}
				if pod.State == Attached && pod.Error != "" || len(pod.Interfaces) != 1 {
					t.Errorf("unexpected pod %+v", pod)
				}
			}
			if diff := cmp.Diff(test.pods, pods); diff != "" || got.State != test.want {
				t.Errorf("the claim is %s, want %s; pods (-want +got):\n%s", got.State, test.want, diff)
			}
		})
	}
}
