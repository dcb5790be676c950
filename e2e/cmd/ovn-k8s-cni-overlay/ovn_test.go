package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParse(t *testing.T) {
	const net = `"name": "net", "netAttachDefName": "ns/net", `
	for name, test := range map[string]struct {
		stdin    string
		problems []string
	}{
		"localnet": {stdin: net +
			`"topology": "localnet", "physicalNetworkName": "phys", "subnets": "192.0.2.0/24", "role": "secondary"`},
		"layer2": {stdin: net +
			`"topology": "layer2", "deviceID": "0000:41:10.0", "subnets": "192.0.2.0/24, 2001:db8::/64", "excludeSubnets": "192.0.2.0/28"`},
		"layer3":      {stdin: net + `"topology": "layer3", "subnets": "10.128.0.0/14/23", "role": "primary"`},
		"no topology": {stdin: net + `"role": "secondary"`, problems: []string{"topology must be"}},
		"no attachment": {stdin: `"name": "net", "topology": "layer2"`,
			problems: []string{`netAttachDefName of network net must be namespace/name, not ""`}},
		"no namespace": {stdin: `"netAttachDefName": "net", "topology": "layer2"`,
			problems: []string{"namespace/name"}},
		"primary localnet": {stdin: net + `"topology": "localnet", "role": "primary"`,
			problems: []string{"always a secondary network"}},
		"another role": {stdin: net + `"topology": "layer2", "role": "Primary"`,
			problems: []string{`invalid network role "Primary"`}},
		"primary, no subnets": {stdin: net + `"topology": "layer2", "role": "primary"`,
			problems: []string{"needs subnets"}},
		"IPAM plugin": {stdin: net + `"topology": "layer2", "ipam": {"type": "host-local"}`,
			problems: []string{"ipam host-local is not supported"}},
		"of others": {stdin: net + `"topology": "layer3", "physicalNetworkName": "p", "allowPersistentIPs": true`,
			problems: []string{"only a localnet", "persistent"}},
		"services": {stdin: net + `"topology": "localnet", "joinSubnet": "100.66.0.0/16"`,
			problems: []string{"no joinSubnet"}},
		"VLAN": {stdin: net + `"topology": "localnet", "vlanID": 7`, problems: []string{"no VLANs"}},
		"device of localnet": {stdin: net + `"topology": "localnet", "deviceID": "0000:41:10.0"`,
			problems: []string{"deviceID 0000:41:10.0 is given for the localnet net: its uplink stays on the host"}},
		"device that is none": {stdin: net + `"topology": "layer2", "deviceID": "eth0"`,
			problems: []string{`must be a PCI address, not "eth0"`}},
		"subnets": {stdin: net + `"topology": "layer2", "subnets": "10.128.0.0/14/23"`,
			problems: []string{"is no subnet"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte("{" + test.stdin + "}"))
			if (err != nil) != (len(test.problems) > 0) {
				t.Fatalf("error %v, want one: %v", err, len(test.problems) > 0)
			}
			for _, problem := range test.problems {
				if !strings.Contains(err.Error(), problem) {
					t.Errorf("error %q says nothing of %q", err, problem)
				}
			}
		})
	}
}

func TestArgs(t *testing.T) {
	const all = "IgnoreUnknown=true;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_INFRA_CONTAINER_ID=box;K8S_POD_UID=1"
	for text, problem := range map[string]string{
		all:                                      "",
		"":                                       `invalid CNI_ARG ""`,
		strings.Replace(all, "UID=1", "UID=", 1): "missing K8S_POD_UID",
		strings.Replace(all, "NAME=pod", "NAME", 1):     `invalid CNI_ARG "K8S_POD_NAME"`,
		strings.Replace(all, "ID=box", "ID=other", 1):   "K8S_POD_INFRA_CONTAINER_ID is other, but CNI_CONTAINERID box",
		strings.Replace(all, "NAME=pod", "NAME=a=b", 1): `invalid CNI_ARG "K8S_POD_NAME=a=b"`,
	} {
		if err := checkArgs(text, "box"); (err == nil) != (problem == "") || err != nil &&
			!strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %q", text, err, problem)
		}
	}
}

func TestMappings(t *testing.T) {
	for alias, want := range map[string]bool{
		"ovn-bridge-mappings=net:br-ex": true, "ovn-bridge-mappings=a:b,net:br-ex": true,
		"": false, "net:br-ex": false, "ovn-bridge-mappings=other:br-ex": false, "ovn-bridge-mappings=net": false,
	} {
		if got := isMapped(alias, "net"); got != want {
			t.Errorf("%q: %t", alias, got)
		}
	}
}

func TestLeases(t *testing.T) {
	p := plugin{state: t.TempDir()}
	c := &config{subnets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/29")},
		excluded: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/31")}}
	c.Name = "net"
	args := func(sandbox string) *skel.CmdArgs { return &skel.CmdArgs{ContainerID: sandbox, IfName: "net1"} }
	lease := func(sandbox string) []netip.Prefix {
		leased, err := p.lease(args(sandbox), c)
		if err != nil {
			t.Fatal(err)
		}
		return leased
	}
	want := func(got []netip.Prefix, address string) {
		t.Helper()
		if diff := cmp.Diff([]netip.Prefix{netip.MustParsePrefix(address)}, got,
			cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("wrong (-want +got):\n%s", diff)
		}
	}
	want(lease("a"), "192.0.2.2/29")
	want(lease("b"), "192.0.2.3/29")
	for range 2 { // it may come again
		if err := p.release(args("a"), c.Name); err != nil {
			t.Error(err)
		}
	}
	want(lease("c"), "192.0.2.2/29")
	for _, sandbox := range []string{"d", "e", "f"} {
		lease(sandbox)
	}
	if _, err := p.lease(args("g"), c); err == nil || !strings.Contains(err.Error(), "subnet 192.0.2.0/29 is full") {
		t.Errorf("a full subnet: %v", err)
	}
}

// TestDelOfWhatIsGone says yes, also where somebody else has removed the link.
func TestDelOfWhatIsGone(t *testing.T) {
	p := plugin{state: t.TempDir()}
	args := &skel.CmdArgs{ContainerID: "never", IfName: "net1"}
	if err := p.del(args); err != nil {
		t.Errorf("without a record: %v", err)
	}
	if err := p.save(args, record{Network: "net"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.del(args); err != nil {
			t.Errorf("with a record: %v", err)
		}
	}
	if _, err := os.Stat(p.recordPath(args)); err == nil {
		t.Error("the record is left")
	}
}

func TestFunctionMustBeVirtual(t *testing.T) {
	p := plugin{pci: t.TempDir()}
	if _, _, err := p.function("0000:41:00.0"); err == nil ||
		!strings.Contains(err.Error(), "0000:41:00.0 is no virtual function") {
		t.Errorf("got %v", err)
	}
	if err := os.MkdirAll(filepath.Join(p.pci, "0000:41:10.0", "physfn"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.function("0000:41:10.0"); err == nil ||
		!strings.Contains(err.Error(), "while getting Netdevice name of 0000:41:10.0") {
		t.Errorf("got %v", err)
	}
}
