package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
)

// config is the plugin's configuration. Settings that are nil or empty leave the function unchanged.
type config struct {
	types.NetConf
	DeviceID      string `json:"deviceID"` // PCI address of the virtual function
	VLAN          *int   `json:"vlan,omitempty"`
	VLANQoS       *int   `json:"vlanQoS,omitempty"`
	MAC           string `json:"mac,omitempty"`
	SpoofCheck    string `json:"spoofchk,omitempty"` // on or off
	Trust         string `json:"trust,omitempty"`    // on or off
	LinkState     string `json:"link_state,omitempty"`
	MinTxRate     *int   `json:"min_tx_rate,omitempty"` // Mbit/s
	MaxTxRate     *int   `json:"max_tx_rate,omitempty"` // Mbit/s
	RuntimeConfig struct {
		MAC string `json:"mac,omitempty"`
	} `json:"runtimeConfig,omitzero"`
}

func linkStates() map[string]uint32 {
	return map[string]uint32{"auto": netlink.VF_LINK_STATE_AUTO, "enable": netlink.VF_LINK_STATE_ENABLE,
		"disable": netlink.VF_LINK_STATE_DISABLE}
}

// parse parses the configuration. As in the real plugin, values in runtimeConfig come from the pod and override those
// of the network.
func parse(data []byte) (*config, error) {
	c := &config{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("cannot decode the configuration: %w", err)
	}
	if c.RuntimeConfig.MAC != "" {
		c.MAC = c.RuntimeConfig.MAC
	}
	return c, c.validate()
}

// validate rejects the same configurations as the real plugin, but reports all problems in one error.
func (c *config) validate() error {
	var problems []error
	check := func(good bool, format string, args ...any) {
		if !good {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(c.DeviceID != "", "deviceID is missing: it is the PCI address of a virtual function")
	check(c.VLAN == nil || *c.VLAN >= 0 && *c.VLAN <= 4094, "vlan must be from 0 to 4094")
	check(c.VLANQoS == nil || *c.VLANQoS >= 0 && *c.VLANQoS <= 7, "vlanQoS must be from 0 to 7")
	check(c.VLANQoS == nil || *c.VLANQoS == 0 || c.VLAN != nil && *c.VLAN != 0, "vlanQoS needs a vlan that is not 0")
	check(slices.Contains([]string{"", "on", "off"}, c.SpoofCheck), "spoofchk must be on or off, not %q", c.SpoofCheck)
	check(slices.Contains([]string{"", "on", "off"}, c.Trust), "trust must be on or off, not %q", c.Trust)
	_, known := linkStates()[c.LinkState]
	check(c.LinkState == "" || known, "link_state must be auto, enable or disable, not %q", c.LinkState)
	if c.MAC != "" {
		_, err := net.ParseMAC(c.MAC)
		check(err == nil, "mac: %v", err)
	}
	return errors.Join(problems...)
}
