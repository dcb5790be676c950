package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// Files maintains two kinds of files for devices that other components attach: a CDI spec for each claim with such
// devices, with CDI devices named after the device IDs, and a device information file for each PCI function. It is safe
// for concurrent use.
//
// Files are computed from all records rather than just from the record of the changed claim, because several claims may
// need the same file, which must not be removed until the last of them is released.
type Files struct {
	cdiDir, infoDir string
	claims          *claims.Store
	keepUnknown     func() bool
	// syncing is held from when the records are read until the files match them.
	syncing sync.Mutex
}

// New returns the component for the given directories of CDI specs and device information files. It does not write
// anything yet. While keepUnknown returns true, the files of claims without a record are kept: after the journal has
// been lost, running pods may still need these files, since their containers are restarted with the CDI devices.
func New(cdiDir, infoDir string, claims *claims.Store, keepUnknown func() bool) *Files {
	return &Files{cdiDir: cdiDir, infoDir: infoDir, claims: claims, keepUnknown: keepUnknown}
}

// DeviceID returns the CDI device ID for a device of a claim that another component attaches. Multus up to 4.2 receives
// this ID from the kubelet and uses the part after "=" as the device ID.
func DeviceID(claim cnichain.Claim, step *cnichain.PlanStep) string {
	return nodeapi.ExternalKind(claim.UID) + "=" + step.Device.NetworkID
}

// Check returns an error if a plan contains a device whose ID cannot be passed to other components.
func Check(plan *cnichain.Plan) error {
	for i := range plan.External {
		if device := plan.External[i].Device; !nodeapi.IsDeviceID(device.NetworkID) {
			return fmt.Errorf("cannot pass device %s to the pod network: %q is not a valid CDI device name; "+
				"use letters, digits, '_', '-', '.' and ':' in the interface name, or in the policy's attribute",
				device.Name, device.NetworkID)
		}
	}
	return nil
}

type file struct {
	data []byte
	// claims maps UIDs to the claims that need the file.
	claims map[string]cnichain.Claim
}

// addFile adds a file for a claim. The content of the file depends only on the device, so it is the same for all claims
// that need the file.
func addFile(files map[string]file, path string, data []byte, claim cnichain.Claim) {
	wanted, known := files[path]
	if !known {
		wanted.claims = map[string]cnichain.Claim{}
	}
	wanted.data = data
	wanted.claims[claim.UID] = claim
	files[path] = wanted
}

// Sync updates the files to match the records of all claims. It returns errors for directories that cannot be read and
// for files of the claim with the given UID. Errors for other claims are returned when those claims are prepared.
func (f *Files) Sync(claimUID string) error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	// Read the records under the lock: of two concurrent calls, the later one must not write files based on older
	// records.
	wanted := map[string]file{}
	records := f.claims.All()
	for i := range records {
		if err := f.add(&records[i], wanted); err != nil {
			return err
		}
	}
	var problems []error
	if !f.keepUnknown() {
		problems = []error{f.remove(f.cdiDir, wanted, isSpec), f.remove(f.infoDir, wanted, isOwnInfo)}
	}
	for _, path := range slices.Sorted(maps.Keys(wanted)) {
		err := f.write(path, wanted[path].data)
		if claim, needs := wanted[path].claims[claimUID]; err != nil && needs {
			problems = append(problems,
				fmt.Errorf("cannot pass the devices of claim %s to the pod network: %w", claim, err))
		}
	}
	return errors.Join(problems...)
}

// add adds a claim's files to wanted. Claims that share a device have the same device information.
func (f *Files) add(record *claims.Record, wanted map[string]file) error {
	var ids []string
	for i := range record.Devices {
		held := &record.Devices[i]
		step := record.ExternalStep(held)
		if step == nil {
			continue
		}
		if !slices.Contains(ids, step.Device.NetworkID) {
			ids = append(ids, step.Device.NetworkID)
		}
		if err := f.addInfo(record.Claim, held, step.Device, wanted); err != nil {
			return err
		}
	}
	if len(ids) == 0 {
		return nil
	}
	env := "DRA_NETWORK_EXTERNAL_" + strings.ToUpper(strings.ReplaceAll(record.Claim.UID, "-", "_")) + "=reserved"
	data, err := nodeapi.EncodeExternal(record.Claim.UID, record.Claim.String(), ids, env)
	addFile(wanted, filepath.Join(f.cdiDir, nodeapi.ExternalName(record.Claim.UID)), data, record.Claim)
	return err
}

// addInfo adds the information about a PCI function twice: once for readers that identify the device by the resource
// name from the policy, and once for Multus up to 4.2, which identifies it by the name of the claim. The specification
// does not cover links other than PCI functions.
func (f *Files) addInfo(
	claim cnichain.Claim, held *claims.HeldDevice, device *cnichain.Device, wanted map[string]file,
) error {
	if device.PCIAddress == "" {
		return nil
	}
	data, err := json.Marshal(nodeapi.NewDeviceInfo(nodeapi.PCIDeviceInfo{Address: device.PCIAddress,
		PFAddress: device.PF, RDMADevice: strings.Join(held.Facts.RDMADevices, ",")}))
	if err != nil {
		return err
	}
	for _, resource := range []string{device.NetworkResource, claim.Name} {
		name := nodeapi.DeviceInfoName(resource, device.NetworkID)
		if resource != "" && len(name) <= maxFileName { // otherwise no reader can open the file
			addFile(wanted, filepath.Join(f.infoDir, name), data, claim)
		}
	}
	return nil
}

// maxFileName is the maximum length of a file name in Linux (NAME_MAX); a claim's name alone may have 253 characters.
const maxFileName = 255

// write writes the file if it is missing or its content differs. It does not replace a device information file that the
// driver did not write, since a device plugin writes such files for the devices in its pool.
func (f *Files) write(path string, data []byte) error {
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err == nil && nodeapi.IsDeviceInfo(path) && !nodeapi.IsWrittenByDriver(old) {
		return fmt.Errorf("%s belongs to another owner of the device, such as a device plugin; remove the device "+
			"from the pool of that owner, and delete the file if the owner no longer runs", path)
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		err = nodeapi.WriteFile(path, data)
	}
	return err
}

func isSpec(path string) bool {
	kind, _ := nodeapi.ParseSpecName(path)
	return kind == nodeapi.ExternalSpec
}

// isOwnInfo reports whether a file is a device information file that the driver wrote, or an incomplete file left
// behind by a killed driver. Files from other components are kept, regardless of their names.
func isOwnInfo(path string) bool {
	if strings.HasPrefix(filepath.Base(path), nodeapi.TempPrefix) {
		return true
	}
	if !nodeapi.IsDeviceInfo(path) {
		return false
	}
	data, err := os.ReadFile(path)
	return err == nil && nodeapi.IsWrittenByDriver(data)
}

func (f *Files) remove(dir string, wanted map[string]file, isOurs func(path string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot list files of released claims: %w", err)
	}
	var problems []error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if _, needed := wanted[path]; needed || !entry.Type().IsRegular() || !isOurs(path) {
			continue
		}
		if err := nodeapi.IgnoreMissing(os.Remove(path)); err != nil {
			problems = append(problems, fmt.Errorf("cannot remove the file of a released claim: %w", err))
		}
	}
	return errors.Join(problems...)
}
