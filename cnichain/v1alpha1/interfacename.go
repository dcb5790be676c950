package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strings"
)

// ClassName returns the name of the DeviceClass for a root step.
func ClassName(topology, step string) string { return topology + "-" + step }

// WantedInterfaceName returns the interface name that a step requests: its ifName, or the name in a derived step's
// configuration. The name may contain templates.
func (s *Step) WantedInterfaceName() string {
	if s.IfName != "" || len(s.DependOn) == 0 || s.Config == nil {
		return s.IfName
	}
	return configuredName(s.Config.Raw)
}

// configuredName returns name or dev from a configuration. Topologies may use these keys to name the interface of a
// derived step.
func configuredName(config json.RawMessage) string {
	var parsed struct {
		Name string `json:"name"`
		Dev  string `json:"dev"`
	}
	if json.Unmarshal(config, &parsed) != nil {
		return ""
	}
	if parsed.Name != "" {
		return parsed.Name
	}
	return parsed.Dev
}

// CheckInterfaceName checks a name against the kernel's rules (dev_valid_name) and the CNI rules.
func CheckInterfaceName(name string) error {
	switch {
	case name == "" || len(name) > 15:
		return fmt.Errorf("%q is not an interface name: 1 to 15 characters", name)
	case name == "." || name == ".." || strings.ContainsAny(name, "/:%") ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fmt.Errorf("%q is not an interface name: no slash, colon, percent sign, space, "+
			"or text that is not printable ASCII", name)
	case name == "lo" || name == "eth0":
		return fmt.Errorf("%q belongs to the pod's own network; use another name", name)
	}
	return nil
}

// CheckClaimInterfaceName checks an interface name that a claim requests. It is stricter than the kernel, because
// plugins run as root and receive the name in CNI_IFNAME and in their configuration, and some plugins are scripts. It
// rejects all and default, because in sysctls, these names refer to the settings for all interfaces.
func CheckClaimInterfaceName(name string) error {
	if err := CheckInterfaceName(name); err != nil {
		return err
	}
	for i, r := range name {
		ordinary := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			i > 0 && (r == '.' || r == '_' || r == '-')
		if !ordinary {
			return fmt.Errorf("%q is not a valid interface name for a claim; use letters, digits, '.', '_' and '-', "+
				"and begin with a letter or digit", name)
		}
	}
	if name == "all" || name == "default" {
		return fmt.Errorf("%q is not a valid interface name: sysctls use it for all interfaces", name)
	}
	return nil
}
