package suite

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
)

// The container hook and the CDI spec directory are removed while the driver is running. After the driver's next sweep,
// pods can start again. The driver does not restart.
func TestRemovedInstallation(t *testing.T) {
	e := newEnv(t, "removed")
	e.offerMacvlan("ri0", "10.179.0.0/24")
	e.apply(pod("early", "ri0"))
	e.ready("early")
	before := e.driverContainer()
	specs := e.fileOnNode("/var/run/cdi")
	hook := e.fileOnNode("/var/lib/kubelet/plugins/dra.networking/bin/dra-network-cni")
	// Remove both at the same time, because one sweep repairs everything. The directory is recreated empty, as if it
	// had been cleaned up.
	if err := errors.Join(os.Remove(hook), os.RemoveAll(specs), os.Mkdir(specs, 0o755)); err != nil {
		t.Fatal(err)
	}
	e.apply(pod("late", "ri0"))
	e.ready("late")
	if after := e.driverContainer(); after != before {
		t.Errorf("the driver was restarted: its container was %s and is now %s", before, after)
	}
	e.driverReady()
	e.eventually("the specs of all pods are written again", func(context.Context) (bool, error) {
		return len(e.filesOnNode("/var/run/cdi/dra.networking-*.json")) == 2, nil
	})
}

// driverContainer returns the ID of the driver's container.
func (e *env) driverContainer() string {
	e.Helper()
	output, err := e.kubectl("", "-n", "dra-network", "get", "pods", "-l", "app.kubernetes.io/name=dra-network-driver",
		"-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}")
	if err != nil {
		e.Fatal(err, output)
	}
	return strings.TrimSpace(output)
}
