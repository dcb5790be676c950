package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func TestClaimParametersAreBroughtIntoTheirUsualForm(t *testing.T) {
	got, err := v1alpha1.DecodeClaimParameters([]byte(`{"apiVersion":"networking.dra.io/v1alpha1","kind":"ClaimParameters","step":"vlan",
		"interfaceName":"data0","MAC":"02-AA-00-00-00-01","ips":["10.1.0.5/24","FD00:0::5/64"]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.ClaimParameters{APIVersion: "networking.dra.io/v1alpha1", Kind: "ClaimParameters", Step: "vlan",
		InterfaceName: "data0",
		MAC:           "02:aa:00:00:00:01", IPs: []string{"10.1.0.5/24", "fd00::5/64"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestClaimParametersThatNoInterfaceCanHave(t *testing.T) {
	many := strings.Repeat(`"10.1.0.1/24",`, 16) + `"10.1.0.2/24"`
	for raw, want := range map[string]string{
		`{}`:                            "need one of [mac ips interfaceName]",
		`{"step":"a"}`:                  "need one of",
		`null`:                          "need one of",
		`{"mac":"02:00:00:00:00:01"}{}`: "more than one document",
		`{"kind":"StepParameters","mac":"02:00:00:00:00:01"}`: `kind "StepParameters", want "ClaimParameters"`,
		`{"apiVersion":"v1","mac":"02:00:00:00:00:01"}`:       `apiVersion "v1"`,
		`{"networkTopologyRef":{"name":"t"},"step":"s"}`: `unknown parameter "networkTopologyRef": use one of ` +
			"step, interfaceName, mac, ips",
		`{"macc":"02:00:00:00:00:01","ips":"10.68.0.7/24"}`: `ips must be a list, such as ["10.68.0.7/24"]; unknown ` +
			`parameter "macc": use one of step, interfaceName, mac, ips`,
		`{"ips":7}`:              `ips must be a list, such as ["10.1.0.5/24"]`,
		`{"ips":[7]}`:            `ips must be a list, such as ["10.1.0.5/24"]`,
		`{"mac":7}`:              `mac must be a string, in quotes, such as "02:00:00:00:00:05"`,
		`{"ips":["fd00::5"]}`:    `ips: "fd00::5" has no prefix length, such as fd00::5/64`,
		`{"interfaceName":"lo"}`: `interfaceName "lo" belongs to the pod's own network; use another name`,
		`{"mac":"x","ips":["10.1.0.5","y"],"interfaceName":"eth0"}`: `zeros; ips: "10.1.0.5" has no prefix ` +
			`length, such as 10.1.0.5/24; ips: "y" is not an address with a prefix length, such as 10.1.0.5/24; ` +
			`interfaceName "eth0" ` +
			"belongs to the pod's own network",
		`{"mac":"01:00:5e:00:00:01"}`:           "not the MAC address of an interface",
		`{"mac":"00:00:00:00:00:00"}`:           "not the MAC address of an interface",
		`{"mac":"02:00:00:00:00:00:00:01"}`:     "not the MAC address of an interface",
		`{"mac":"{{ pod.name }}"}`:              "not the MAC address of an interface",
		`{"ips":["10.1.0.5"]}`:                  `"10.1.0.5" has no prefix length, such as 10.1.0.5/24`,
		`{"ips":["10.1.0.5/33"]}`:               "not an address with a prefix length",
		`{"ips":["fe80::1%eth0/64"]}`:           "not an address with a prefix length",
		`{"ips":["0.0.0.0/0"]}`:                 "cannot be the address of an interface",
		`{"ips":["127.0.0.1/8"]}`:               "cannot be the address of an interface",
		`{"ips":["224.0.0.1/24"]}`:              "cannot be the address of an interface",
		`{"ips":["::ffff:10.1.0.5/120"]}`:       "cannot be the address of an interface",
		`{"ips":["10.1.0.5/24","10.1.0.5/24"]}`: "twice",
		`{"ips":[` + many + `]}`:                "17 addresses, and the limit is 16",
	} {
		if _, err := v1alpha1.DecodeClaimParameters([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", raw, err, want)
		}
	}
}

// Parameters in claims and classes keep the version that their author used, and mean the same in all served versions.
func TestParametersOfEveryServedVersion(t *testing.T) {
	for _, served := range v1alpha1.ServedVersions() {
		header := `{"apiVersion":"` + served.String() + `",`
		claim, err := v1alpha1.DecodeClaimParameters([]byte(header + `"kind":"ClaimParameters","interfaceName":"net7"}`))
		if err != nil || claim.InterfaceName != "net7" {
			t.Errorf("%s: got claim parameters %+v, %v", served, claim, err)
		}
		class, err := v1alpha1.DecodeParameters([]byte(header +
			`"kind":"StepParameters","networkTopologyRef":{"name":"t"},"step":"s"}`))
		if err != nil || class.Step != "s" || class.NetworkTopologyRef.Name != "t" {
			t.Errorf("%s: got step parameters %+v, %v", served, class, err)
		}
	}
	const want = `apiVersion "networking.dra.io/v1beta2", this driver reads "networking.dra.io/v1alpha1, networking.dra.io/v1beta1"`
	_, err := v1alpha1.DecodeClaimParameters([]byte(
		`{"apiVersion":"networking.dra.io/v1beta2","kind":"ClaimParameters","interfaceName":"net7"}`))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want ... %s ...", err, want)
	}
}
