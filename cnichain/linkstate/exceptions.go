package linkstate

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Attributes from linux/if_link.h that are missing from golang.org/x/sys/unix.
const (
	iflaAllMulti     = 61
	iflaGROMaxSize   = 58
	iflaGSOIPv4Max   = 63
	iflaGROIPv4Max   = 64
	iflaNewNetNSID   = 45
	iflaTargetNetNS  = 46
	iflaNewIfIndex   = 49
	iflaPropList     = 52
	iflaPermAddress  = 54
	iflaLinkNetNSID  = 37
	iflaCarrierUps   = 47
	iflaCarrierDowns = 48
	iflaHeadroom     = 68
	iflaTailroom     = 69
)

// linkNames returns the names of attributes that are restored or familiar to users. All other attributes are identified
// by number.
func linkNames() map[uint16]string {
	return map[uint16]string{
		unix.IFLA_BROADCAST: "broadcast", unix.IFLA_LINK: "link", unix.IFLA_MASTER: "master",
		unix.IFLA_CARRIER: "carrier",
		unix.IFLA_TXQLEN:  "txqlen", unix.IFLA_MAP: "map", unix.IFLA_LINKMODE: "linkmode", unix.IFLA_GROUP: "group",
		unix.IFLA_NUM_VF: "num_vf", unix.IFLA_VFINFO_LIST: "vfinfo", unix.IFLA_PROTO_DOWN: "proto_down",
		unix.IFLA_GSO_MAX_SEGS: "gso_max_segs", unix.IFLA_GSO_MAX_SIZE: "gso_max_size", unix.IFLA_XDP: "xdp",
		iflaGROMaxSize: "gro_max_size", iflaGSOIPv4Max: "gso_ipv4_max_size", iflaGROIPv4Max: "gro_ipv4_max_size",
	}
}

// linkExceptions lists the RTM_GETLINK attributes that are excluded from the comparison, each with the reason.
func linkExceptions() map[uint16]string {
	const (
		baseline  = "part of the baseline, which restores it by name"
		counter   = "a counter"
		namespace = "describes the reply or a namespace, not the link"
	)
	return map[uint16]string{
		unix.IFLA_ADDRESS: baseline, unix.IFLA_IFNAME: baseline, unix.IFLA_MTU: baseline, unix.IFLA_IFALIAS: baseline,
		iflaPropList:      baseline,
		unix.IFLA_STATS:   counter,
		unix.IFLA_STATS64: counter, unix.IFLA_CARRIER_CHANGES: counter, iflaCarrierUps: counter,
		iflaCarrierDowns:    counter,
		unix.IFLA_OPERSTATE: "follows the carrier, the state and the link mode, some time later",
		unix.IFLA_QDISC: "the kernel removes queueing disciplines with each move (dev_shutdown); a device that has a " +
			"configured one is not taken",
		unix.IFLA_AF_SPEC: "IP settings belong to the namespace; the kernel makes new ones with each move " +
			"(inetdev_event, addrconf_notify)",
		unix.IFLA_PROMISCUITY: "counts users, such as packet sockets of the host; the flag itself is compared, and " +
			"links on the device are searched for",
		iflaAllMulti:    "counts users, as promiscuity does",
		iflaLinkNetNSID: "the number that this namespace has for another", iflaNewNetNSID: namespace,
		iflaTargetNetNS: namespace, iflaNewIfIndex: namespace, unix.IFLA_EVENT: namespace,
		unix.IFLA_EXT_MASK: namespace,
		iflaPermAddress:    "cannot be set; a physical function may change the one of its virtual functions",
		iflaHeadroom:       "follows from the links above and the other end of a pair", iflaTailroom: "as the headroom",
	}
}

// flagExceptions are the link flags (ifi_flags) that are not compared. IFF_UP is part of the baseline; the others
// depend on the carrier.
const flagExceptions = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP | unix.IFF_DORMANT

// fileExceptions lists the files in /sys/class/net/<name> and its queue directories that are excluded from the
// comparison, each with the reason.
func fileExceptions() map[string]string {
	const (
		link    = "the same as an attribute of RTM_GETLINK"
		carrier = "depends on the cable and the other end"
		counter = "a counter"
		set     = "records that the address or the name was set, which restoring does"
	)
	return map[string]string{
		"address": link, "broadcast": link, "flags": link, "ifalias": link, "ifindex": link, "iflink": link,
		"link_mode": link, "mtu": link, "netdev_group": link, "tx_queue_len": link, "proto_down": link,
		"uevent":  "contains the name and the index",
		"carrier": carrier, "operstate": carrier, "dormant": carrier, "speed": carrier, "duplex": carrier,
		"carrier_changes": counter, "carrier_up_count": counter, "carrier_down_count": counter,
		"addr_assign_type": set, "name_assign_type": set,
		"tx_timeout": counter, "inflight": counter, "stall_cnt": counter, "stall_max": counter,
		"limit": "the present value of dynamic queue limits; the configured bounds are compared",
	}
}

// group is a pair of ethtool commands: get reads attributes, and set writes the same attributes. set is 0 if they
// cannot be written.
type group struct {
	name     string
	get, set uint8
	// except lists the attributes in the reply that are not compared, since they depend on the other end of the cable
	// or on other attributes.
	except []uint16
}

// groups returns the ethtool settings that a user with admin privileges in a network namespace can change.
//
// Not read: STRSET and TSINFO (constants), LINKSTATE, STATS, PHC_VCLOCKS and PLCA_STATUS (states), CABLE_TEST and
// MODULE_FW_FLASH (actions), MODULE_EEPROM (the transceiver's memory), TUNNEL_INFO (the ports for the namespace's
// tunnels).
func groups() []group {
	return []group{
		{name: "linkinfo", get: unix.ETHTOOL_MSG_LINKINFO_GET, set: unix.ETHTOOL_MSG_LINKINFO_SET,
			except: []uint16{unix.ETHTOOL_A_LINKINFO_TP_MDIX}},
		{name: "linkmodes", get: unix.ETHTOOL_MSG_LINKMODES_GET, set: unix.ETHTOOL_MSG_LINKMODES_SET,
			except: []uint16{unix.ETHTOOL_A_LINKMODES_PEER, unix.ETHTOOL_A_LINKMODES_MASTER_SLAVE_STATE}},
		{name: "debug", get: unix.ETHTOOL_MSG_DEBUG_GET, set: unix.ETHTOOL_MSG_DEBUG_SET},
		{name: "wol", get: unix.ETHTOOL_MSG_WOL_GET, set: unix.ETHTOOL_MSG_WOL_SET},
		{name: "features", get: unix.ETHTOOL_MSG_FEATURES_GET, set: unix.ETHTOOL_MSG_FEATURES_SET,
			except: []uint16{unix.ETHTOOL_A_FEATURES_ACTIVE}}, // depends on wanted features and lower links
		{name: "privflags", get: unix.ETHTOOL_MSG_PRIVFLAGS_GET, set: unix.ETHTOOL_MSG_PRIVFLAGS_SET},
		{name: "rings", get: unix.ETHTOOL_MSG_RINGS_GET, set: unix.ETHTOOL_MSG_RINGS_SET},
		{name: "channels", get: unix.ETHTOOL_MSG_CHANNELS_GET, set: unix.ETHTOOL_MSG_CHANNELS_SET},
		{name: "coalesce", get: unix.ETHTOOL_MSG_COALESCE_GET, set: unix.ETHTOOL_MSG_COALESCE_SET},
		{name: "pause", get: unix.ETHTOOL_MSG_PAUSE_GET, set: unix.ETHTOOL_MSG_PAUSE_SET},
		{name: "eee", get: unix.ETHTOOL_MSG_EEE_GET, set: unix.ETHTOOL_MSG_EEE_SET,
			except: []uint16{unix.ETHTOOL_A_EEE_MODES_PEER, unix.ETHTOOL_A_EEE_ACTIVE}},
		{name: "fec", get: unix.ETHTOOL_MSG_FEC_GET, set: unix.ETHTOOL_MSG_FEC_SET,
			except: []uint16{4}}, // ETHTOOL_A_FEC_ACTIVE
		{name: "module", get: unix.ETHTOOL_MSG_MODULE_GET, set: unix.ETHTOOL_MSG_MODULE_SET,
			except: []uint16{3}}, // ETHTOOL_A_MODULE_POWER_MODE, the current mode; the policy is compared
		{name: "pse", get: unix.ETHTOOL_MSG_PSE_GET, set: unix.ETHTOOL_MSG_PSE_SET,
			except: []uint16{4, 7, 8, 9, 10}}, // states and measured power
		{name: "rss", get: unix.ETHTOOL_MSG_RSS_GET, set: 48},
		{name: "plca", get: 39, set: 40},
		{name: "mm", get: unix.ETHTOOL_MSG_MM_GET, set: unix.ETHTOOL_MSG_MM_SET,
			except: []uint16{3, 9}}, // ETHTOOL_A_MM_TX_ACTIVE, ETHTOOL_A_MM_VERIFY_STATUS
		{name: "tsconfig", get: unix.ETHTOOL_MSG_TSCONFIG_GET, set: unix.ETHTOOL_MSG_TSCONFIG_SET},
	}
}

// carrierAttribute is a link's carrier. It depends on the cable, so it is not compared. However, it is restored for
// links without hardware, whose carrier can be set.
const carrierAttribute = "link.carrier"

// isSpeed reports whether an attribute is a link's speed, duplex mode or number of lanes. These attributes are ignored
// while they are negotiated or unknown, and are compared only if both states contain them: a forced speed is a setting,
// but a virtual function always reports the carrier's speed as forced.
func isSpeed(name string) bool {
	return slices.Contains([]string{"ethtool.linkmodes.5", "ethtool.linkmodes.6", "ethtool.linkmodes.9"}, name)
}

// removeSpeed removes a speed that is negotiated or unknown (ETHTOOL_A_LINKMODES_AUTONEG, SPEED_UNKNOWN).
func (s State) removeSpeed() {
	number := func(name string) uint32 {
		value := append(bytes.Clone(s[name]), make([]byte, headerLength+4)...)
		return binary.NativeEndian.Uint32(value[headerLength:])
	}
	const unknown = ^uint32(0)
	speed := number("ethtool.linkmodes.5")
	if number("ethtool.linkmodes.2")&0xff == 0 && speed != 0 && speed != unknown {
		return
	}
	maps.DeleteFunc(s, func(name string, _ []byte) bool { return isSpeed(name) })
}
