package nodeapi

import (
	"path/filepath"
	"strings"
)

const (
	// driverName is the name that the driver uses to register with the kubelet and in CDI. A test compares it with the
	// name in the API.
	driverName = "dra.networking"
	// socketName is the name of the node socket in the driver's plugin directory. Only root may open the socket.
	socketName = "netdra.sock"
	// DefaultPluginDir is the driver's directory below the kubelet's default directory.
	DefaultPluginDir = "/var/lib/kubelet/plugins/" + driverName
	// DefaultLogDir is the default directory for the logs of CNI calls.
	DefaultLogDir = "/var/log/dra-network"
	// DefaultDeviceInfoDir is the directory from which Multus reads the device information written by device plugins.
	DefaultDeviceInfoDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"
)

// These are the HTTP paths on the node socket. GET requests only read; POST requests to PathLeftovers and PathOrphans
// make changes.
const (
	PathState     = "/state"
	PathPolicies  = "/policies"
	PathPublished = "/published"
	PathClaims    = "/claims"
	PathSandboxes = "/sandboxes"
	// PathLeftovers, on POST, retries the leftover given by the form value "key". If the form value "forget" is "true"
	// and the retry fails, the driver discards the leftover. The response contains the error, or is empty if there is
	// none.
	PathLeftovers = "/leftovers"
	// PathOrphans, on POST, removes the orphans. For compatibility with earlier versions, the path must not change.
	PathOrphans = "/garbage"
)

// SocketPath returns the path to the node socket in the driver's plugin directory.
func SocketPath(pluginDir string) string { return filepath.Join(pluginDir, socketName) }

// These are the kinds of CDI specs, as printed by netdra.
const (
	// NoSpec is the kind of a file that does not belong to the driver.
	NoSpec = ""
	// GateSpec is the kind of a gate, which allows a claim's containers to start.
	GateSpec = "CDI spec"
	// MetadataSpec is the kind of a spec that describes devices to containers (written by
	// k8s.io/dynamic-resource-allocation/kubeletplugin).
	MetadataSpec = "CDI spec of metadata"
	// ExternalSpec is the kind of a spec with the names of a claim's devices that another component attaches.
	ExternalSpec = "CDI spec of externally attached devices"
)

// Suspended is the suffix that is added to a gate's file name to close the gate temporarily, so that neither CDI nor
// the hook finds the file.
const Suspended = ".closed"

// metadataInfix separates the driver's name from the claim's UID in the name of a metadata spec.
const metadataInfix = "_metadata_"

// externalInfix separates the driver's name from the claim's UID in the name of a spec for devices that another
// component attaches.
const externalInfix = "_external_"

// GateName returns the file name of a claim's gate.
func GateName(claimUID string) string { return driverName + "-" + claimUID + ".json" }

// MetadataName returns the file name of the CDI spec that describes the devices for a request in a claim.
func MetadataName(claimUID, request string) string {
	return driverName + metadataInfix + claimUID + "_" + request + ".json"
}

// ExternalName returns the file name of the CDI spec for a claim whose devices another component attaches.
func ExternalName(claimUID string) string { return driverName + externalInfix + claimUID + ".json" }

// ParseSpecName returns the kind of a CDI spec and the UID of the spec's claim, based on the file name.
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
// driver sets such a journal aside by renaming it, and starts a new one.
func IsUnreadableJournal(name string) bool { return strings.HasPrefix(name, "journal.db.unreadable-") }
