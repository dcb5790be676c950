package nodeapi

import (
	"path/filepath"
	"strings"
)

const (
	// driverName is the name under which the driver registers with the kubelet and in CDI. A test compares it with the
	// name in the API.
	driverName = "dra.networking"
	// socketName is the name of the socket in the driver's plugin directory. Only root may open it.
	socketName = "netdra.sock"
	// DefaultPluginDir is the driver's directory below the kubelet's default directory.
	DefaultPluginDir = "/var/lib/kubelet/plugins/" + driverName
	// DefaultLogDir is the default directory for the logs of CNI calls.
	DefaultLogDir = "/var/log/dra-network"
	// DefaultDeviceInfoDir is the directory from which Multus reads the device information written by device plugins.
	DefaultDeviceInfoDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"
)

// The paths on the node socket. GET requests only read; POST requests to PathLeftovers and PathOrphans make changes.
const (
	PathState     = "/state"
	PathPolicies  = "/policies"
	PathPublished = "/published"
	PathClaims    = "/claims"
	PathSandboxes = "/sandboxes"
	// PathLeftovers, on POST, retries the leftover in the form value "key". If the form value "forget" is "true" and
	// the retry fails, the driver discards the leftover. The response contains the error, or is empty.
	PathLeftovers = "/leftovers"
	// PathOrphans, on POST, removes the orphans. The path is a contract with earlier versions.
	PathOrphans = "/garbage"
)

// SocketPath returns the path of the node socket, given the driver's plugin directory.
func SocketPath(pluginDir string) string { return filepath.Join(pluginDir, socketName) }

// The kinds of CDI specs, as printed by netdra.
const (
	// NoSpec is the kind of files that do not belong to the driver.
	NoSpec = ""
	// GateSpec allows the containers of a claim to start.
	GateSpec = "CDI spec"
	// MetadataSpec describes devices to containers (written by k8s.io/dynamic-resource-allocation/kubeletplugin).
	MetadataSpec = "CDI spec of metadata"
	// ExternalSpec contains the names of the devices in a claim that another component attaches.
	ExternalSpec = "CDI spec of devices that others attach"
)

// Suspended is the suffix with which a gate is temporarily renamed, so that neither CDI nor the hook finds it.
const Suspended = ".closed"

// metadataInfix separates the driver's name from the UID in the name of a metadata spec.
const metadataInfix = "_metadata_"

// externalInfix separates the driver's name from the UID in the name of a spec for devices that another component
// attaches.
const externalInfix = "_external_"

// GateName returns the file name of a claim's gate.
func GateName(claimUID string) string { return driverName + "-" + claimUID + ".json" }

// MetadataName returns the file name of the CDI spec that describes the devices for a request in a claim.
func MetadataName(claimUID, request string) string {
	return driverName + metadataInfix + claimUID + "_" + request + ".json"
}

// ExternalName returns the file name of the CDI spec for a claim whose devices another component attaches.
func ExternalName(claimUID string) string { return driverName + externalInfix + claimUID + ".json" }

// ParseSpecName returns the kind of a CDI spec and the UID of its claim, based on its file name.
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
