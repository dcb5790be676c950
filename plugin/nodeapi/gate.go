package nodeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

const (
	// GateHookCommand is the first argument of the helper binary when it is run as the OCI hook.
	GateHookCommand = "gate"
	// HelperName is the file name of the helper binary in the directory [HelperDir].
	HelperName = "dra-network-cni"
	// gateHookTimeout is the time, in seconds, after which the runtime stops waiting for the hook and rejects the
	// container.
	gateHookTimeout = 10
	// namespacesAnnotation lists the pinned network namespaces that a claim is attached to, separated by commas.
	namespacesAnnotation = "dra.networking/network-namespaces"
	// claimAnnotation contains the name of the claim, for error messages.
	claimAnnotation = "dra.networking/claim"
	// cdiVersion is the oldest version of CDI that supports annotations.
	cdiVersion = "0.6.0"
)

// HelperDir returns the host directory that contains the helper binary, as well as links to it that are named after the
// CNI plugins in the binary.
func HelperDir(pluginDir string) string { return filepath.Join(pluginDir, "bin") }

// EncodeGate returns the CDI spec of a claim, to be written to path. kind is the vendor and class in the names of the
// CDI devices, which the kubelet can pass to containers individually. claim is the namespace and name of the claim, for
// use in error messages. namespaces are the paths at which the driver has pinned the network namespaces that the claim
// is attached to; the claim's containers may run in these namespaces. helper is the path to the helper binary on the
// host.
func EncodeGate(path, kind, claim string, devices []specs.Device, namespaces []string, helper string) ([]byte, error) {
	timeout := gateHookTimeout
	return json.Marshal(&specs.Spec{
		Version:     cdiVersion,
		Kind:        kind,
		Annotations: map[string]string{claimAnnotation: claim, namespacesAnnotation: strings.Join(namespaces, ",")},
		Devices:     devices,
		// Edits at the top level of the spec are applied to a container only once, regardless of how many of the spec's
		// devices the container uses.
		ContainerEdits: specs.ContainerEdits{Hooks: []*specs.Hook{{
			// The hook runs in the runtime's namespaces, after the container's namespaces have been created and before
			// its process starts (OCI runtime specification, "POSIX-platform Hooks").
			HookName: "createRuntime", Path: helper, Args: []string{HelperName, GateHookCommand, path},
			Timeout: &timeout,
		}}},
	})
}

// ClaimOfHook returns the UID of the claim whose gate an OCI hook with these arguments checks. ok is false for other
// hooks.
func ClaimOfHook(args []string) (uid string, ok bool) {
	if len(args) != 3 || args[0] != HelperName || args[1] != GateHookCommand {
		return "", false
	}
	kind, uid := ParseSpecName(args[2])
	return uid, kind == GateSpec
}

// ReadNamespaces returns the claim and the namespaces from a CDI spec that EncodeGate encoded.
func ReadNamespaces(path string) (claim string, namespaces []string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return "", nil, fmt.Errorf("cannot parse CDI spec %s: %w", path, err)
	}
	namespaces = strings.Split(spec.Annotations[namespacesAnnotation], ",")
	return spec.Annotations[claimAnnotation], slices.DeleteFunc(namespaces,
		func(path string) bool { return path == "" }), nil
}

// CheckGate returns an error unless, according to the claim's CDI spec at path spec, the claim is attached to the
// network namespace at netns. It compares the identities that the kernel assigns to namespaces. A pin keeps its
// namespace alive, so no other namespace can have the same inode. If the pin has been removed, the file at its path is
// missing or is not a namespace, so it matches nothing.
func CheckGate(spec, netns string) error {
	claim, pins, err := ReadNamespaces(spec)
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("the claim of the container is not attached to any pod; the network driver of the node " +
			"attaches it, and the kubelet retries")
	}
	if err != nil {
		return err
	}
	container, err := os.Stat(netns)
	if err != nil {
		return fmt.Errorf("cannot find the network namespace of the container: %w", err)
	}
	for _, pin := range pins {
		if pinned, err := os.Stat(pin); err == nil && os.SameFile(pinned, container) {
			return nil
		}
	}
	return fmt.Errorf("claim %s is not attached to the network namespace of this container; the network driver of "+
		"the node attaches it, and the kubelet retries", claim)
}
