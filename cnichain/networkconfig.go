package cnichain

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// NetworkConfig is the part of a link's network configuration on the node that is lost when the link moves to another
// namespace. It does not include routing rules, since they persist even without their links.
type NetworkConfig struct {
	Addresses  []NodeAddress  `json:"addresses,omitempty"`
	Routes     []NodeRoute    `json:"routes,omitempty"`
	Neighbours []NodeNeighbor `json:"neighbours,omitempty"`
	// TakenAt is the time when the baseline was read, in seconds since boot. It is 0 in records from earlier driver
	// versions.
	TakenAt int `json:"takenAt,omitempty"`
}

// infinite is INFINITY_LIFE_TIME in linux/if_addr.h, which means that an address never expires.
const infinite = math.MaxUint32

// kernelProtocol is RTPROT_KERNEL in linux/rtnetlink.h, for routes that the kernel creates and deletes together with an
// address.
const kernelProtocol = 2

// Remaining returns the part of a configuration that is still valid at the later time now, in seconds since boot.
// Leased addresses may have expired by then. Addresses that have not expired keep their original expiration time, since
// the server may assign an expired address to another client. Routes that depend on expired addresses are removed with
// those addresses. present contains the addresses that the link has at that time.
//
// Routes without a gateway come first, since the gateways of other routes are reached through them.
func (c *NetworkConfig) Remaining(now int, present []NodeAddress) *NetworkConfig {
	left := &NetworkConfig{Neighbours: c.Neighbours, TakenAt: now}
	elapsed := now - c.TakenAt
	if c.TakenAt == 0 {
		elapsed = 0
	}
	var ended []netip.Prefix
	var gone []network
	for _, address := range c.Addresses {
		if address.ValidLifetime > 0 && address.ValidLifetime < infinite {
			address.ValidLifetime -= elapsed
			isThere := func(a NodeAddress) bool { return a.Address == address.Address }
			if prefix, err := netip.ParsePrefix(address.Address); address.ValidLifetime <= 0 && err == nil {
				if !slices.ContainsFunc(present, isThere) {
					ended, gone = append(ended, prefix), append(gone, networksOf([]NodeAddress{address})...)
				}
				continue
			}
		}
		if address.PreferredLifetime > 0 && address.PreferredLifetime < infinite {
			address.PreferredLifetime = max(address.PreferredLifetime-elapsed, 0)
		}
		left.Addresses = append(left.Addresses, address)
	}
	reachable := networksOf(slices.Concat(present, left.Addresses))
	for _, withGateway := range []bool{false, true} {
		for _, route := range c.Routes {
			if (route.Gateway != "") != withGateway {
				continue
			}
			works := route.works(ended, gone, reachable)
			if works {
				left.Routes = append(left.Routes, route)
			}
			if prefix, err := netip.ParsePrefix(route.Destination); err == nil && !withGateway {
				if works {
					reachable = append(reachable, network{prefix, route.Table})
				} else {
					gone = append(gone, network{prefix, route.Table})
				}
			}
		}
	}
	return left
}

// network is a network that is reachable through a link, with the table that contains the route to it.
type network struct {
	netip.Prefix
	table int
}

// mainTable is RT_TABLE_MAIN in linux/rtnetlink.h. This table contains the routes that the kernel creates for
// addresses.
const mainTable = 254

// networksOf returns the networks that contain a link's addresses or their peer addresses.
func networksOf(addresses []NodeAddress) []network {
	var networks []network
	for _, address := range addresses {
		for _, text := range []string{address.Address, address.Peer} {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				networks = append(networks, network{prefix.Masked(), mainTable})
			}
		}
	}
	return networks
}

// works reports whether a route is still valid without the expired addresses and the networks that disappeared with
// them. This is the case if the route does not use an expired source address, was not created by the kernel for an
// expired address, and does not have a gateway that was reachable only through these networks. The kernel looks up a
// gateway in the route's table first, and then like any other destination.
func (r *NodeRoute) works(ended []netip.Prefix, gone, reachable []network) bool {
	for _, address := range ended {
		madeForIt := r.Protocol == kernelProtocol && r.Destination == address.Masked().String() &&
			!slices.Contains(reachable, network{address.Masked(), mainTable})
		if r.Source == address.Addr().String() || madeForIt {
			return false
		}
	}
	gateway, err := netip.ParseAddr(r.Gateway)
	if err != nil || r.OnLink {
		return true
	}
	leads := func(n network) bool { return n.Contains(gateway) && (n.table == mainTable || n.table == r.Table) }
	return !slices.ContainsFunc(gone, leads) || slices.ContainsFunc(reachable, leads)
}

// NodeAddress is an address on a link. Lifetimes are the numbers of seconds that remained when the baseline was read.
// An address with a valid lifetime of 0 never expires.
type NodeAddress struct {
	Address           string `json:"address"`
	Peer              string `json:"peer,omitempty"`
	Broadcast         string `json:"broadcast,omitempty"`
	Label             string `json:"label,omitempty"`
	Scope             int    `json:"scope,omitempty"`
	Flags             int    `json:"flags,omitempty"`
	ValidLifetime     int    `json:"validLifetime,omitempty"`
	PreferredLifetime int    `json:"preferredLifetime,omitempty"`
}

// NodeRoute is a route through one link, in any table.
type NodeRoute struct {
	Family      int    `json:"family"`
	Destination string `json:"destination,omitempty"`
	Gateway     string `json:"gateway,omitempty"`
	Source      string `json:"source,omitempty"`
	Table       int    `json:"table"`
	Priority    int    `json:"priority,omitempty"`
	Scope       int    `json:"scope,omitempty"`
	Protocol    int    `json:"protocol,omitempty"`
	Tos         int    `json:"tos,omitempty"`
	OnLink      bool   `json:"onLink,omitempty"`
	MTU         int    `json:"mtu,omitempty"`
	AdvMSS      int    `json:"advMSS,omitempty"`
}

// NodeNeighbor is a permanent entry in the neighbor table.
type NodeNeighbor struct {
	IP  string `json:"ip"`
	MAC string `json:"mac"`
}

// String describes the route in ip(8) notation.
func (r *NodeRoute) String() string {
	text := "route to everything"
	if r.Destination != "" {
		text = "route to " + r.Destination
	}
	if r.Gateway != "" {
		text += " via " + r.Gateway
	}
	return fmt.Sprintf("%s in table %d", text, r.Table)
}
