// Package ovnkube is a test double for OVN-Kubernetes on a node, without OVN. It consists of the server that the CNI
// plugin ovn-k8s-cni-overlay calls, and the controller that allocates addresses for pods. It rejects the same requests
// as the real server, according to the ovn-kubernetes source at 8871cd9 (August 2026), go-controller/pkg/cni. Pods are
// connected to br-int, which is an Open vSwitch bridge if one with this name exists, and otherwise a Linux bridge.
// Ports are recorded in files instead of a database.
//
// It does not support VLANs, representors, primary networks, or networks that span nodes.
//
// A request is processed in these steps: the plugin posts its environment and configuration to the server; the server
// waits until the controller has written the pod's addresses to the pod's annotation; then the server creates the
// interface and records it as a port. Errors that a driver could receive have the same text as those from the real
// server, so that tests for user-visible messages are valid for both.
package ovnkube

import (
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// Socket is the path of the server's socket on a node (types.go, ServerRunDir).
const Socket = "/var/run/ovn-kubernetes/cni/ovn-cni-server.sock"

// PluginType is the CNI type of the plugin.
const PluginType = "ovn-k8s-cni-overlay"

// Request is the plugin's message to the server: the plugin's entire environment and its standard input.
type Request struct {
	Env    map[string]string `json:"env,omitempty"`
	Config []byte            `json:"config,omitempty"`
}

// Response is the response to ADD and DEL. Responses to CHECK and STATUS are empty.
type Response struct {
	Result *types100.Result
}

// Metrics is the message that the plugin posts to /metrics after each call.
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
