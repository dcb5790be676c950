package kerneltest

import (
	"errors"
	"maps"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// setFeatures sets a link's features by name in the calling thread's namespace, as "ethtool -K" does.
func setFeatures(name string, features map[string]bool) error {
	const (
		wanted, bits, bit, bitName, bitValue = 3, 3, 1, 2, 3
		nested                               = unix.NLA_F_NESTED
	)
	family, err := netlink.GenlFamilyGet("ethtool")
	if err != nil {
		return err
	}
	request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	request.AddRawData([]byte{unix.ETHTOOL_MSG_FEATURES_SET, 1, 0, 0})
	header := nl.NewRtAttr(1|nested, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_NAME, nl.ZeroTerminated(name))
	request.AddRawData(header.Serialize())
	set := nl.NewRtAttr(wanted|nested, nil)
	list := nl.NewRtAttr(bits|nested, nil)
	for _, feature := range slices.Sorted(maps.Keys(features)) {
		entry := nl.NewRtAttr(bit|nested, nil)
		entry.AddRtAttr(bitName, nl.ZeroTerminated(feature))
		if features[feature] {
			entry.AddRtAttr(bitValue, nil)
		}
		list.AddChild(entry)
	}
	set.AddChild(list)
	request.AddRawData(set.Serialize())
	_, err = request.Execute(unix.NETLINK_GENERIC, 0)
	if errors.Is(err, unix.EINVAL) {
		return errNotHere
	}
	return err
}
