package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// ClaimParameters are the opaque parameters in a claim: its author's settings for one interface. They apply only as far
// as the step allows them (claimParameters), and cannot name a device or change a plugin's configuration.
type ClaimParameters struct {
	// APIVersion is networking.dra.io/v1alpha1 or networking.dra.io/v1beta1, which mean the same. May be empty.
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind is ClaimParameters. May be empty.
	Kind string `json:"kind,omitempty"`
	// Step is the step whose interface the settings apply to: the step of the request's DeviceClass, which is the
	// default, or a step that depends on it.
	Step string `json:"step,omitempty"`
	// InterfaceName is its name in the pod.
	InterfaceName string `json:"interfaceName,omitempty"`
	// MAC is six octets in hexadecimal with colons, of a single station.
	MAC string `json:"mac,omitempty"`
	// IPs are addresses with prefix lengths, for example 10.1.0.5/24.
	IPs []string `json:"ips,omitempty"`
}

// ClaimParametersKind is the kind of ClaimParameters.
const ClaimParametersKind = "ClaimParameters"

// maxClaimIPs is the maximum number of addresses in a claim. It is limited by the number that fits into the claim's
// status.
const maxClaimIPs = 16

// Given returns the parameters that are set.
func (p *ClaimParameters) Given() []ClaimParameter {
	var given []ClaimParameter
	if p.MAC != "" {
		given = append(given, ClaimMAC)
	}
	if len(p.IPs) > 0 {
		given = append(given, ClaimIPs)
	}
	if p.InterfaceName != "" {
		given = append(given, ClaimInterfaceName)
	}
	return given
}

// DecodeClaimParameters decodes a claim's opaque parameters strictly, and normalizes addresses. Unknown parameters, a
// different kind, an empty object, and invalid names and addresses are errors. The error lists all problems, because
// otherwise the claim's author would have to create another pod to see the next one.
func DecodeClaimParameters(raw []byte) (ClaimParameters, error) {
	if err := checkShape(raw); err != nil {
		return ClaimParameters{}, err
	}
	var parameters ClaimParameters
	if err := decode(raw, &parameters); err != nil {
		return ClaimParameters{}, err
	}
	if err := checkKind(parameters.APIVersion, parameters.Kind, ClaimParametersKind); err != nil {
		return ClaimParameters{}, err
	}
	if len(parameters.Given()) == 0 {
		return ClaimParameters{}, fmt.Errorf("parameters need one of %v", ClaimParameterNames())
	}
	if err := parameters.normalize(); err != nil {
		return ClaimParameters{}, err
	}
	return parameters, nil
}

// normalize converts addresses to their canonical form, and returns an error that lists all invalid values.
func (p *ClaimParameters) normalize() error {
	var problems []error
	if p.MAC != "" {
		mac, err := stationAddress(p.MAC)
		p.MAC, problems = mac, append(problems, err)
	}
	ips, err := interfaceAddresses(p.IPs)
	p.IPs, problems = ips, append(problems, err)
	if p.InterfaceName != "" {
		if err := CheckClaimInterfaceName(p.InterfaceName); err != nil {
			problems = append(problems, fmt.Errorf("interfaceName %w", err))
		}
	}
	return joined(problems)
}

// checkShape checks that every parameter is known and that its value has the right type. The decoder handles input that
// is not an object.
func checkShape(raw []byte) error {
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil {
		return nil //nolint:nilerr // the decoder reports this
	}
	examples := map[string]string{"apiVersion": servedNames(), "kind": ClaimParametersKind, "step": "link",
		"interfaceName": "data0", "mac": "02:00:00:00:00:05", "ips": ""}
	names, shown := slices.Sorted(maps.Keys(examples)), []string{"step", "interfaceName", "mac", "ips"}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		// The decoder is case-insensitive as well.
		i := slices.IndexFunc(names, func(known string) bool { return strings.EqualFold(known, name) })
		if i < 0 {
			problems = append(problems, fmt.Errorf("unknown parameter %q: use one of %s", name,
				strings.Join(shown, ", ")))
			continue
		}
		key := names[i]
		if key == "ips" {
			problems = append(problems, checkList(key, given[name]))
			continue
		}
		var text string
		if json.Unmarshal(given[name], &text) != nil {
			problems = append(problems, fmt.Errorf("%s must be a string, in quotes, such as %q", key, examples[key]))
		}
	}
	return joined(problems)
}

// checkList checks the type of a list of addresses.
func checkList(name string, raw json.RawMessage) error {
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return nil
	}
	example := "10.1.0.5/24"
	var single string
	if json.Unmarshal(raw, &single) == nil {
		if _, err := netip.ParsePrefix(single); err == nil {
			example = single
		}
	}
	return fmt.Errorf("%s must be a list, such as [%q]", name, example)
}

// joined combines problems into one error on a single line, or returns nil if there are none.
func joined(problems []error) error {
	var texts []string
	for _, problem := range problems {
		if problem != nil {
			texts = append(texts, problem.Error())
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// stationAddress parses a MAC address that can be assigned to an interface (IEEE 802, section 8: neither a group
// address nor all zeros).
func stationAddress(text string) (string, error) {
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || slices.Max(mac) == 0 {
		return "", fmt.Errorf("mac %q is not the MAC address of an interface: six octets with colons, the first one "+
			"even, not all zeros", text)
	}
	return mac.String(), nil
}

// interfaceAddresses parses the addresses that a claim requests and returns them in netip's canonical form, so that the
// rest of the driver can compare them. The error is for the user who wrote the claim.
func interfaceAddresses(texts []string) ([]string, error) {
	if len(texts) > maxClaimIPs {
		return nil, fmt.Errorf("ips has %d addresses, and the limit is %d", len(texts), maxClaimIPs)
	}
	var addresses []string
	var problems []error
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		addr := prefix.Addr()
		switch {
		case err != nil:
			problems = append(problems, notPrefix(text))
		case addr.IsUnspecified() || addr.IsMulticast() || addr.IsLoopback() || addr.Is4In6():
			problems = append(problems, fmt.Errorf("ips: %q cannot be the address of an interface", text))
		case slices.Contains(addresses, prefix.String()):
			problems = append(problems, errors.New("ips contains "+text+" twice"))
		default:
			addresses = append(addresses, prefix.String())
		}
	}
	return addresses, joined(problems)
}

// notPrefix explains why text is not an address with a prefix length.
func notPrefix(text string) error {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return fmt.Errorf("ips: %q is not an address with a prefix length, such as 10.1.0.5/24", text)
	}
	length := 24
	if addr.Is6() {
		length = 64
	}
	return fmt.Errorf("ips: %q has no prefix length, such as %s/%d", text, addr, length)
}
