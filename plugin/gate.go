package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// gate keeps containers from being created before their claim is attached, whatever becomes of the driver: kubelet is
// told a CDI device for the claim, whose spec file exists only while the claim is attached. The runtime refuses to create
// a container with a device that it can't resolve, and kubelet tries again.
type gate struct {
	dir string
}

// gateKind is vendor and class of the CDI devices.
const gateKind = v1alpha1.DriverName + "/interfaces"

// device is the CDI device ID of a claim. Its name is all that the runtime's error message can say.
func (gate) device(claimUID string) string { return gateKind + "=" + deviceName(claimUID) }

func deviceName(claimUID string) string { return "not-attached-yet." + claimUID }

func (g gate) path(claimUID string) string {
	return filepath.Join(g.dir, v1alpha1.DriverName+"-"+claimUID+".json")
}

// open lets the claim's containers be created, with device nodes of the host. Opening again is no error.
func (g gate) open(claimUID string, nodes []string) error {
	// A CDI device must edit something; this names the claim to whoever looks into the container.
	edits := specs.ContainerEdits{Env: []string{envName(claimUID) + "=attached"}}
	for _, path := range nodes {
		edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: path, Permissions: "rw"})
	}
	spec := &specs.Spec{
		Version: "0.6.0",
		Kind:    gateKind,
		Devices: []specs.Device{{Name: deviceName(claimUID), ContainerEdits: edits}},
	}
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(g.dir))
	if err != nil {
		return fmt.Errorf("cannot open the gate of claim %s: %w", claimUID, err)
	}
	if err := cache.WriteSpec(spec, filepath.Base(g.path(claimUID))); err != nil {
		return fmt.Errorf("cannot open the gate of claim %s: %w", claimUID, err)
	}
	return nil
}

func envName(claimUID string) string {
	return "DRA_NETWORK_CLAIM_" + strings.ToUpper(strings.ReplaceAll(claimUID, "-", "_"))
}

// close keeps further containers of the claim from being created. Closing again is no error.
func (g gate) close(claimUID string) error {
	if err := os.Remove(g.path(claimUID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot close the gate of claim %s: %w", claimUID, err)
	}
	return nil
}

// closeOthers closes every gate but those of the given claims: what an earlier driver left open must not let a container
// start.
func (g gate) closeOthers(open map[string]bool) error {
	paths, err := filepath.Glob(filepath.Join(g.dir, v1alpha1.DriverName+"-*.json"))
	if err != nil {
		return err
	}
	var problems []error
	for _, path := range paths {
		uid := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), v1alpha1.DriverName+"-"), ".json")
		if !open[uid] {
			problems = append(problems, g.close(uid))
		}
	}
	return errors.Join(problems...)
}
