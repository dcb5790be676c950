package ovnkube

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
)

// integration is the name of the bridge to which pods are connected: an Open vSwitch bridge if one with this name
// exists, or a Linux bridge as a substitute.
const integration = "br-int"

// mappingsKey is the key for the bridge mappings in Open vSwitch's external IDs.
const mappingsKey = "ovn-bridge-mappings"

// isOpenVSwitch reports whether the bridge is an Open vSwitch bridge.
func isOpenVSwitch(bridge netlink.Link) bool { return bridge.Type() == "openvswitch" }

// mappings returns the bridge mappings in the form NETWORK:BRIDGE,... For a Linux bridge, the mappings are stored in
// its alias, after the key and "=".
func mappings() (string, error) {
	bridge, err := netlink.LinkByName(integration)
	if err != nil {
		return "", err
	}
	if isOpenVSwitch(bridge) {
		list, err := vsctl("--if-exists", "get", "Open_vSwitch", ".", "external-ids:"+mappingsKey)
		return strings.Trim(strings.TrimSpace(list), `"`), err
	}
	list, _ := strings.CutPrefix(bridge.Attrs().Alias, mappingsKey+"=")
	return list, nil
}

// connect makes a link on the host a port of the bridge.
func connect(name string) error {
	bridge, err := netlink.LinkByName(integration)
	if err != nil {
		return fmt.Errorf("cannot find %s: %w", integration, err)
	}
	if isOpenVSwitch(bridge) {
		_, err := vsctl("--may-exist", "add-port", integration, name)
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetMaster(link, bridge)
}

// disconnect removes a port from Open vSwitch, whose database still contains the port after the link is gone. A port on
// a Linux bridge disappears together with its link.
func disconnect(name string) error {
	bridge, err := netlink.LinkByName(integration)
	if err != nil || !isOpenVSwitch(bridge) {
		return unlessGone(err)
	}
	_, err = vsctl("--if-exists", "del-port", integration, name)
	return err
}

// vsctl runs ovs-vsctl with the same time limit as the real server, and returns its output.
func vsctl(args ...string) (string, error) {
	output, err := exec.Command("ovs-vsctl", append([]string{"--timeout=15"}, args...)...).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		err = fmt.Errorf("cannot run ovs-vsctl %s: %w", strings.Join(args, " "), err)
	}
	return string(output), err
}
