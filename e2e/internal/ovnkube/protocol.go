// Package ovnkube is a double of OVN-Kubernetes on a node, without OVN: the server that its CNI plugin
// ovn-k8s-cni-overlay calls, and the controller that allocates addresses for pods. It rejects the same requests as the
// real server, according to the source of ovn-kubernetes at 8871cd9 (August 2026), go-controller/pkg/cni. Pods are
// ports of br-int, which is an Open vSwitch bridge if one exists, and otherwise a Linux bridge of this name. Files
// replace the database records of ports.
//
// It supports no VLANs, no representors, no primary networks, and no networks that span nodes.
//
// A request has these steps: the plugin posts its environment and configuration to the server; the server waits until
// the controller has written addresses for the pod into its annotation; then it creates the interface and records it as
// a port. Errors that a driver could receive have the same text as those of the real server, so that tests of
// user-visible messages apply to both.
package ovnkube

import (
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// Socket is the path of the server's socket on a node (types.go, ServerRunDir).
const Socket = "/var/run/ovn-kubernetes/cni/ovn-cni-server.sock"

// PluginType is the CNI type of the plugin.
const PluginType = "ovn-k8s-cni-overlay"

// Request is the plugin's message to the server: its whole environment and its standard input.
type Request struct {
	Env    map[string]string `json:"env,omitempty"`
	Config []byte            `json:"config,omitempty"`
}

// Response is the response to ADD and DEL. CHECK and STATUS have an empty response.
type Response struct {
	Result *types100.Result
}

// Metrics is the plugin's message to /metrics after each call.
type Metrics struct {
	Command     string  `json:"command"`
	ElapsedTime float64 `json:"elapsedTime"` // seconds
	HasErr      bool    `json:"hasErr"`
}

// netConf is the part of the plugin's configuration that the server and the controller use.
type netConf struct {
	types.NetConf
	Topology            string `json:"topology"`
	Role                string `json:"role"`
	NADName             string `json:"netAttachDefName"`
	MTU                 int    `json:"mtu"`
	Subnets             string `json:"subnets"`
	ExcludeSubnets      string `json:"excludeSubnets"`
	JoinSubnet          string `json:"joinSubnet"`
	VLANID              int    `json:"vlanID"`
	AllowPersistentIPs  bool   `json:"allowPersistentIPs"`
	PhysicalNetworkName string `json:"physicalNetworkName"`
	DeviceID            string `json:"deviceID"`
}
