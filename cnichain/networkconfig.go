package cnichain

import "fmt"

// NetworkConfig is what the node has configured on a link and a move to another namespace removes. Routing rules
// stay, whatever becomes of the links that they name.
type NetworkConfig struct {
	Addresses  []NodeAddress  `json:"addresses,omitempty"`
	Routes     []NodeRoute    `json:"routes,omitempty"`
	Neighbours []NodeNeighbor `json:"neighbours,omitempty"`
}

// NodeAddress is an address of a link. Lifetimes are in seconds, as they were when the baseline was taken; 0 means
// forever.
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

// NodeRoute is a route of any table that goes over one link.
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

// NodeNeighbor is a permanent entry of the neighbour table.
type NodeNeighbor struct {
	IP  string `json:"ip"`
	MAC string `json:"mac"`
}

// String names the route as ip(8) does.
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
