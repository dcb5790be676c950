package nodeapi

import (
	"path/filepath"
	"strings"
)

const (
	// driverName is the name of the driver for the kubelet and CDI. A test compares it with the name in the API.
	driverName = "dra.networking"
	// socketName is the name of the socket in the driver's plugin directory. Only root may open it.
	socketName = "netdra.sock"
	// DefaultPluginDir is the directory of the driver in the kubelet's default directory.
	DefaultPluginDir = "/var/lib/kubelet/plugins/" + driverName
	// DefaultLogDir is the default directory of the logs of CNI calls.
	DefaultLogDir = "/var/log/dra-network"
	// DefaultDeviceInfoDir is the directory in which Multus reads the device information of device plugins.
	DefaultDeviceInfoDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"
)

// Paths of the node socket. GET reads; POST to PathLeftovers and PathOrphans changes something.
const (
	PathState     = "/state"
	PathPolicies  = "/policies"
	PathPublished = "/published"
	PathClaims    = "/claims"
	PathSandboxes = "/sandboxes"
	// PathLeftovers retries a leftover on POST with the form value "key". With the value "true" for "forget", the
	// driver discards the leftover if it fails again; the response contains the error, or is empty.
	PathLeftovers = "/leftovers"
	// PathOrphans removes the orphans on POST. Its name is a contract with earlier versions.
	PathOrphans = "/garbage"
)

// SocketPath returns the path of the node socket, given the driver's plugin directory.
func SocketPath(pluginDir string) string { return filepath.Join(pluginDir, socketName) }

// Kinds of CDI specs, as netdra prints them.
const (
	// NoSpec is the kind of files that do not belong to the driver.
	NoSpec = ""
	// GateSpec lets the containers of a claim start.
	GateSpec = "CDI spec"
	// MetadataSpec describes devices to containers (k8s.io/dynamic-resource-allocation/kubeletplugin writes it).
	MetadataSpec = "CDI spec of metadata"
	// ExternalSpec names the devices of a claim that another component attaches.
	ExternalSpec = "CDI spec of devices that others attach"
)

// Suspended is the suffix of a gate that is temporarily moved aside, where neither CDI nor the hook finds it.
const Suspended = ".closed"

// metadataInfix separates the driver's name from the UID in the name of a metadata spec.
const metadataInfix = "_metadata_"

// externalInfix separates the driver's name from the UID in the name of a spec of devices that another component
// attaches.
const externalInfix = "_external_"

// GateName returns the file name of a claim's gate.
func GateName(claimUID string) string { return driverName + "-" + claimUID + ".json" }

// MetadataName returns the file name of the CDI spec that describes the devices of a claim's request.
func MetadataName(claimUID, request string) string {
	return driverName + metadataInfix + claimUID + "_" + request + ".json"
}

// ExternalName returns the file name of the CDI spec of a claim whose devices another component attaches.
func ExternalName(claimUID string) string { return driverName + externalInfix + claimUID + ".json" }

// ParseSpecName returns the kind of a CDI spec, based on its file name, and the UID of its claim.
func ParseSpecName(name string) (kind, claimUID string) {
	name, isSpec := strings.CutSuffix(strings.TrimSuffix(filepath.Base(name), Suspended), ".json")
	if !isSpec {
		return NoSpec, ""
	}
	if uid, found := strings.CutPrefix(name, driverName+"-"); found {
		return GateSpec, uid
	}
	if rest, found := strings.CutPrefix(name, driverName+metadataInfix); found {
		uid, _, _ := strings.Cut(rest, "_")
		return MetadataSpec, uid
	}
	if uid, found := strings.CutPrefix(name, driverName+externalInfix); found {
		return ExternalSpec, uid
	}
	return NoSpec, ""
}

// IsUnreadableJournal reports whether a file in the plugin directory is a journal that the driver could not read. The
// driver renames such a journal and starts a new one.
func IsUnreadableJournal(name string) bool { return strings.HasPrefix(name, "journal.db.unreadable-") }
