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

// Files maintains a CDI spec for each claim with devices that another component attaches, in which the names of CDI
// devices are the IDs of the devices, and a file of device information for each PCI function. It is safe for concurrent
// use.
//
// Files are computed from all records rather than from the changed claim: several claims may need the same file, which
// is removed with the last of these claims.
type Files struct {
	cdiDir, infoDir string
	claims          *claims.Store
	keepUnknown     func() bool
	// syncing is held from reading the records until the files match them.
	syncing sync.Mutex
}

// New returns the component for the directories of CDI specs and of device information. It writes nothing yet. Files of
// claims without a record stay while keepUnknown returns true: after the loss of a journal, running pods may use them,
// and their containers are restarted with the CDI devices.
func New(cdiDir, infoDir string, claims *claims.Store, keepUnknown func() bool) *Files {
	return &Files{cdiDir: cdiDir, infoDir: infoDir, claims: claims, keepUnknown: keepUnknown}
}

// DeviceID returns the CDI device ID of a claim's device that another component attaches. Multus up to 4.2 uses the
// part after "=" as the device's ID, which it queries from the kubelet.
func DeviceID(claim cnichain.Claim, step *cnichain.PlanStep) string {
	return nodeapi.ExternalKind(claim.UID) + "=" + step.Device.NetworkID
}

// Check returns an error if a device of a plan cannot be named to other components.
func Check(plan *cnichain.Plan) error {
	for i := range plan.External {
		if device := plan.External[i].Device; !nodeapi.IsDeviceID(device.NetworkID) {
			return fmt.Errorf("cannot name device %s to the network of the pod: %q is not a valid CDI device name; use "+
				"letters, digits, '_', '-', '.' and ':' in the interface name, or in the policy's attribute",
				device.Name, device.NetworkID)
		}
	}
	return nil
}

// file is a file that must exist.
type file struct {
	data []byte
	// claims are the claims that need the file, by UID.
	claims map[string]cnichain.Claim
}

// addFile adds a file for a claim. Its content depends only on the device, so it is the same for all claims that need
// the file.
func addFile(files map[string]file, path string, data []byte, claim cnichain.Claim) {
	wanted, known := files[path]
	if !known {
		wanted.claims = map[string]cnichain.Claim{}
	}
	wanted.data = data
	wanted.claims[claim.UID] = claim
	files[path] = wanted
}

// Sync updates the files to match the records of all claims. It returns errors about files of the claim with the UID,
// and about directories that cannot be read. Errors of other claims are returned when they are prepared.
func (f *Files) Sync(claimUID string) error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	// Under the lock: of two concurrent calls, the later must not write the files of older records.
	specs, infos, err := f.wanted()
	if err != nil {
		return err
	}
	var problems []error
	if !f.keepUnknown() {
		problems = []error{f.removeSpecs(specs), f.removeInfos(infos)}
	}
	for _, wanted := range []map[string]file{specs, infos} {
		for _, path := range slices.Sorted(maps.Keys(wanted)) {
			err := f.write(path, wanted[path].data)
			if claim, needs := wanted[path].claims[claimUID]; err != nil && needs {
				problems = append(problems,
					fmt.Errorf("cannot pass the devices of claim %s to the pod network: %w", claim, err))
			}
		}
	}
	return errors.Join(problems...)
}

// wanted returns the files of all claims by path.
func (f *Files) wanted() (specs, infos map[string]file, err error) {
	specs, infos = map[string]file{}, map[string]file{}
	records := f.claims.All()
	for i := range records {
		if err := f.add(&records[i], specs, infos); err != nil {
			return nil, nil, err
		}
	}
	return specs, infos, nil
}

// add adds the files of a claim. Several claims that share a device have the same device information.
func (f *Files) add(record *claims.Record, specs, infos map[string]file) error {
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
		if err := f.addInfo(record.Claim, held, step.Device, infos); err != nil {
			return err
		}
	}
	if len(ids) == 0 {
		return nil
	}
	env := "DRA_NETWORK_EXTERNAL_" + strings.ToUpper(strings.ReplaceAll(record.Claim.UID, "-", "_")) + "=reserved"
	data, err := nodeapi.EncodeExternal(record.Claim.UID, record.Claim.String(), ids, env)
	addFile(specs, filepath.Join(f.cdiDir, nodeapi.ExternalName(record.Claim.UID)), data, record.Claim)
	return err
}

// addInfo adds the information about a PCI function, for readers that identify it by the resource name of the policy,
// and for Multus up to 4.2, which identifies devices by the name of their claim. The specification does not cover
// links.
func (f *Files) addInfo(
	claim cnichain.Claim, held *claims.HeldDevice, device *cnichain.Device, infos map[string]file,
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
		if resource != "" && len(name) <= maxFileName { // otherwise no reader can look for the file
			addFile(infos, filepath.Join(f.infoDir, name), data, claim)
		}
	}
	return nil
}

// maxFileName is the longest file name in Linux (NAME_MAX); the name of a claim may already have 253 characters.
const maxFileName = 255

// write writes a file that is missing or has other content. It does not replace a file that the driver has not written:
// a device plugin writes it if the device is in its pool.
func (f *Files) write(path string, data []byte) error {
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err == nil && nodeapi.IsDeviceInfo(path) && !nodeapi.IsWrittenByDriver(old) {
		return fmt.Errorf("%s belongs to another owner of the device, such as a device plugin; remove the device from the "+
			"pool of that owner, and delete the file if the owner no longer runs", path)
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		err = nodeapi.WriteFile(path, data)
	}
	return err
}

// removeSpecs removes the CDI specs that no claim needs.
func (f *Files) removeSpecs(wanted map[string]file) error {
	return remove(f.cdiDir, func(path string) bool {
		kind, _ := nodeapi.ParseSpecName(path)
		_, needed := wanted[path]
		return kind == nodeapi.ExternalSpec && !needed
	})
}

// removeInfos removes the driver's device information that no claim needs, and incomplete files of a killed driver.
//
// Files of other components stay, whatever their names are.
func (f *Files) removeInfos(wanted map[string]file) error {
	return remove(f.infoDir, func(path string) bool {
		if strings.HasPrefix(filepath.Base(path), nodeapi.TempPrefix) {
			return true
		}
		if _, needed := wanted[path]; needed || !nodeapi.IsDeviceInfo(path) {
			return false
		}
		data, err := os.ReadFile(path)
		return err == nil && nodeapi.IsWrittenByDriver(data)
	})
}

// remove removes files of a directory that unneeded selects.
func remove(dir string, unneeded func(path string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot look for files of released claims: %w", err)
	}
	var problems []error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if !entry.Type().IsRegular() || !unneeded(path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			problems = append(problems, fmt.Errorf("cannot remove the file of a released claim: %w", err))
		}
	}
	return errors.Join(problems...)
}
