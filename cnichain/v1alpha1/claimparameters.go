package v1alpha1

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// ClaimParameters are the opaque parameters in a claim: what its author wants of one interface. They are honoured only
// as far as the step allows it (claimParameters), and never name a device or a plugin's configuration.
type ClaimParameters struct {
	// APIVersion is networking.dra.io/v1alpha1 or networking.dra.io/v1beta1, which mean the same. May be empty.
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind is ClaimParameters. May be empty.
	Kind string `json:"kind,omitempty"`
	// Step is the step whose interface is meant: the one that the request's DeviceClass is of, which is the default, or
	// one that depends on it.
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

// maxClaimIPs bounds how many addresses a claim may ask for: as many as its status can show.
const maxClaimIPs = 16

// Given returns what is set.
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

// DecodeClaimParameters reads a claim's opaque parameters strictly, and brings addresses into their usual form. Unknown
// fields, another kind, nothing that is set, and addresses that no interface can have are errors. Whether the
// interface's name can be one is not checked here.
func DecodeClaimParameters(raw []byte) (ClaimParameters, error) {
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
	if parameters.MAC != "" {
		mac, err := stationAddress(parameters.MAC)
		if err != nil {
			return ClaimParameters{}, err
		}
		parameters.MAC = mac
	}
	ips, err := interfaceAddresses(parameters.IPs)
	parameters.IPs = ips
	return parameters, err
}

// stationAddress reads a MAC address that one interface may have (IEEE 802, section 8: neither a group's nor all
// zeros).
func stationAddress(text string) (string, error) {
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || slices.Max(mac) == 0 {
		return "", fmt.Errorf("mac %q is not the MAC address of an interface: six octets with colons, the first one "+
			"even, not all zeros", text)
	}
	return mac.String(), nil
}

// interfaceAddresses are the addresses that a claim wants, in the form that all of the driver compares: netip writes
// each address in one way. The error is for the user who wrote the claim.
func interfaceAddresses(texts []string) ([]string, error) {
	if len(texts) > maxClaimIPs {
		return nil, fmt.Errorf("ips has %d addresses, %d at most", len(texts), maxClaimIPs)
	}
	var addresses []string
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("ips: %q is not an address with a prefix length, for example 10.1.0.5/24: %w", text,
				err)
		}
		addr := prefix.Addr()
		if addr.IsUnspecified() || addr.IsMulticast() || addr.IsLoopback() || addr.Is4In6() {
			return nil, fmt.Errorf("ips: %q is no address of an interface", text)
		}
		if slices.Contains(addresses, prefix.String()) {
			return nil, errors.New("ips has " + text + " twice")
		}
		addresses = append(addresses, prefix.String())
	}
	return addresses, nil
}
