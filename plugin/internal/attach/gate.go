package attach

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// Gate prevents containers from starting without the interfaces of their claim, even if the driver is down. It is
// implemented as the claim's CDI spec, whose devices the kubelet passes to the runtime:
//
//   - The spec file exists only while the claim is attached. Without the file, the runtime rejects
//     containers that name the claim, and the kubelet retries.
//   - The spec adds an OCI hook that compares the network namespace of each such container with the
//     namespaces that the claim is attached to. The hook rejects any other namespace.
type Gate struct {
	dir string
	// helper is the path to the helper binary that implements the hook.
	helper string
}

// NewGate returns a Gate that writes its files to dir and uses the helper binary at the path helper as its hook.
func NewGate(dir, helper string) Gate { return Gate{dir: dir, helper: helper} }

const gateKind = v1alpha1.DriverName + "/interfaces"

// Part is the part of a claim that a container names: the whole claim, or one of its requests.
type Part struct {
	ClaimUID string
	// Request is empty for the whole claim.
	Request string
}

// DeviceID returns the CDI device ID for a part of a claim. Nothing else in the runtime's error message identifies the
// claim.
func (Gate) DeviceID(part Part) string { return gateKind + "=" + deviceName(part) }

// PartOfDevice returns the part of a claim that a CDI device ID identifies; it accepts both names of the device.
func PartOfDevice(id string) (part Part, ours bool) {
	name, ours := strings.CutPrefix(id, gateKind+"=")
	for _, prefix := range []string{notAttachedYet, whenAttached} {
		if name, ok := strings.CutPrefix(name, prefix); ours && ok {
			part.ClaimUID, part.Request, _ = strings.Cut(name, ".")
			return part, true
		}
	}
	return Part{}, false
}

// Each CDI device has two names. The kubelet receives whenAttached and shows it in the pod's status (resourceID) for
// the lifetime of the pod, so the wording must be correct at all times. notAttachedYet is the name that earlier drivers
// used; it remains valid because the kubelet keeps names in its checkpoint.
const (
	notAttachedYet = "not-attached-yet."
	whenAttached   = "when-attached."
)

// deviceName does not escape anything: UIDs contain no dots, and requests are DNS labels.
func deviceName(part Part) string { return partName(whenAttached, part) }

func partName(prefix string, part Part) string {
	name := prefix + part.ClaimUID
	if part.Request != "" {
		name += "." + part.Request
	}
	return name
}

// PartOf returns the part of its claim that a device belongs to. A claim with a single request is not split into parts,
// so that earlier drivers recognize the CDI devices of its containers.
func PartOf(record *claims.Record, held *claims.HeldDevice) Part {
	part := Part{ClaimUID: record.Claim.UID}
	request := resourceclaim.BaseRequestRef(held.Request)
	for i := range record.Devices {
		if resourceclaim.BaseRequestRef(record.Devices[i].Request) != request {
			part.Request = request
		}
	}
	return part
}

// parts returns the parts of a claim, each under both names, with the device nodes and variables from the steps of its
// sandboxes. The first part is the whole claim, which is used by containers that were prepared by earlier drivers; the
// other parts are the requests.
func parts(record *claims.Record, steps [][]executor.StepRecord) (devices []specs.Device) {
	seen := map[Part]bool{}
	add := func(part Part) {
		if seen[part] {
			return
		}
		seen[part] = true
		// A CDI device must contain at least one edit.
		edits := specs.ContainerEdits{Env: slices.Concat([]string{envName(record.Claim.UID) + "=attached"},
			part.env(), interfaceEnv(record, steps, part), verbsEnv(record, steps, part))}
		for _, node := range deviceNodes(record, steps, part) {
			// On the host, the device file may be accessible only to root. In a container that uses the claim, it is
			// accessible to every user.
			edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: node, Permissions: "rw",
				FileMode: ptr.To(os.FileMode(0o666))})
		}
		devices = append(devices, specs.Device{Name: deviceName(part), ContainerEdits: edits},
			specs.Device{Name: partName(notAttachedYet, part), ContainerEdits: edits})
	}
	add(Part{ClaimUID: record.Claim.UID})
	for i := range record.Devices {
		add(PartOf(record, &record.Devices[i]))
	}
	return devices
}

func (g Gate) path(claimUID string) string {
	return filepath.Join(g.dir, nodeapi.GateName(claimUID))
}

// open allows the claim's containers to start in the network namespaces at pins, with the device nodes and environment
// variables from the steps of the claim's sandboxes. It is not an error if the gate is already open. The file is
// written only if its content changes, since the runtime reads all specs after each write: a sweep over a hundred
// unchanged claims thus causes no work for the runtime.
func (g Gate) open(record *claims.Record, steps [][]executor.StepRecord, pins []string) error {
	claim := record.Claim
	path := g.path(claim.UID)
	data, err := nodeapi.EncodeGate(path, gateKind, claim.String(), parts(record, steps), pins, g.helper)
	if err != nil {
		return fmt.Errorf("cannot open the gate of claim %s: %w", claim, err)
	}
	if old, err := os.ReadFile(path); err != nil || !bytes.Equal(old, data) {
		err = nodeapi.WriteFile(path, data)
		if err != nil {
			return fmt.Errorf("cannot open the gate of claim %s: %w", claim, err)
		}
	}
	// Remove the file of the suspended gate last: after a crash before this point, both files exist, and the file of
	// the open gate takes precedence. In the opposite order, a crash could leave neither file, and if the journal were
	// lost as well, the namespaces of the claim's pods would be unknown.
	return nodeapi.IgnoreMissing(os.Remove(path + nodeapi.Suspended))
}

// suspend closes a gate but keeps its content on disk, in case the journal is lost.
//
// The rename is atomic for the runtime as well: its CDI cache reads only files that end in .json or .yaml.
func (g Gate) suspend(claimUID string) error {
	path := g.path(claimUID)
	// If the gate is already closed or suspended, the file does not exist, which is correct.
	if err := nodeapi.IgnoreMissing(os.Rename(path, path+nodeapi.Suspended)); err != nil {
		return fmt.Errorf("cannot close the gate of claim %s: %w", claimUID, err)
	}
	return nil
}

func (g Gate) resume(claimUID string) error {
	path := g.path(claimUID)
	return nodeapi.IgnoreMissing(os.Rename(path+nodeapi.Suspended, path))
}

func envName(claimUID string) string {
	return "DRA_NETWORK_CLAIM_" + strings.ToUpper(strings.ReplaceAll(claimUID, "-", "_"))
}

// env returns the environment variable that identifies the part's request.
func (p Part) env() []string {
	if p.Request == "" {
		return nil
	}
	return []string{requestEnv(p.ClaimUID) + strings.ToUpper(strings.ReplaceAll(p.Request, "-", "_")) + "=" + p.Request}
}

func requestEnv(claimUID string) string { return envName(claimUID) + "_" }

// PartsOfEnv returns the parts of a claim that a container names, according to the container's environment variables:
// the requests, or the whole claim if there are none.
func PartsOfEnv(claimUID string, env []string) (parts []Part) {
	prefix := requestEnv(claimUID)
	for _, variable := range env {
		_, request, _ := strings.Cut(variable, "=")
		part := Part{ClaimUID: claimUID, Request: request}
		if strings.HasPrefix(variable, prefix) && slices.Contains(part.env(), variable) {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return []Part{{ClaimUID: claimUID}}
	}
	return parts
}

// close prevents further containers of the claim from being created. It is not an error if the gate is already closed.
func (g Gate) close(claimUID string) error {
	path := g.path(claimUID)
	if err := errors.Join(nodeapi.IgnoreMissing(os.Remove(path)),
		nodeapi.IgnoreMissing(os.Remove(path+nodeapi.Suspended))); err != nil {
		return fmt.Errorf("cannot close the gate of claim %s: %w", claimUID, err)
	}
	return nil
}

// Namespaces returns the pins that an open or suspended gate contains.
func (g Gate) Namespaces(claimUID string) ([]string, error) {
	_, pins, err := nodeapi.ReadNamespaces(g.path(claimUID))
	if errors.Is(err, os.ErrNotExist) {
		_, pins, err = nodeapi.ReadNamespaces(g.path(claimUID) + nodeapi.Suspended)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return pins, err
}

// claims returns the UIDs of the claims whose gates are open or [nodeapi.Suspended], sorted and without duplicates.
//
// If open is interrupted by a crash, both files of a claim may exist. They are adjacent in the sorted list, so Compact
// removes the second.
func (g Gate) claims() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(g.dir, v1alpha1.DriverName+"-*.json*"))
	if err != nil {
		return nil, err
	}
	uids := make([]string, len(paths))
	for i, path := range paths {
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), nodeapi.Suspended), ".json")
		uids[i] = strings.TrimPrefix(name, v1alpha1.DriverName+"-")
	}
	return slices.Compact(uids), nil
}

// sweep removes incomplete files that were left behind by a killed driver or by the CDI library, which earlier driver
// versions used. Another process may be writing temporary files through the CDI library at the moment, so sweep removes
// only old files.
func (g Gate) sweep(isOld func(fs.FileInfo) bool) error {
	var problems []error
	for _, pattern := range []string{nodeapi.TempPrefix + "*.tmp", "spec.*.tmp"} {
		paths, err := filepath.Glob(filepath.Join(g.dir, pattern))
		problems = append(problems, err)
		for _, path := range paths {
			info, err := os.Lstat(path)
			if err != nil || !info.Mode().IsRegular() || !strings.HasPrefix(filepath.Base(path), nodeapi.TempPrefix) &&
				!isOld(info) {
				continue
			}
			problems = append(problems, nodeapi.IgnoreMissing(os.Remove(path)))
		}
	}
	return errors.Join(problems...)
}
