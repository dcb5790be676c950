package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// withRDMA attaches claim-a, whose topology requires RDMA devices and sets limits, to the sandbox a-0.
func withRDMA(t *testing.T, mode string) *fixture {
	f := newFixture(t)
	f.node.AddRDMA("mlx5_0", "up0", "", mode)
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", f.limited(record)))
	return f
}

// limited changes a prepared record into one for a topology with RDMA and limits.
func (f *fixture) limited(record claims.Record) claims.Record {
	f.Helper()
	step := &record.Plans[0].Steps[0]
	step.RDMA = &v1alpha1.StepRDMA{}
	step.Limits = &v1alpha1.StepLimits{LockedMemory: "1Gi", RDMAHandles: ptr.To[int32](2),
		RDMAObjects: ptr.To[int32](50)}
	f.must(f.baselines(&record))
	return record
}

// spec returns the CDI spec of a claim's gate.
func (f *fixture) spec(claim string) string {
	f.Helper()
	data, err := os.ReadFile(filepath.Join(f.cdiDir(), v1alpha1.DriverName+"-"+claim+".json"))
	f.must(err)
	return string(data)
}

func (f *fixture) create(sandbox string, named ...string) (*api.ContainerAdjustment, error) {
	adjustment, _, err := f.nri.CreateContainer(context.Background(), f.sandbox(sandbox),
		f.container(sandbox, named...))
	return adjustment, err
}

// Only containers that name the claim get the claim's device nodes and limits.
func TestContainersGetRDMADevicesAndLimits(t *testing.T) {
	for _, mode := range []string{cnichain.RDMAShared, cnichain.RDMAExclusive} {
		t.Run(mode, func(t *testing.T) {
			f := withRDMA(t, mode)
			for _, path := range []string{"/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"} {
				if !strings.Contains(f.spec("claim-a"), `"path":"`+path+`"`) {
					t.Errorf("the gate does not contain %s:\n%s", path, f.spec("claim-a"))
				}
			}
			adjustment, err := f.create("a-0", "claim-a")
			f.must(err)
			if limit := adjustment.GetRlimits(); len(limit) != 1 || limit[0].GetType() != "RLIMIT_MEMLOCK" ||
				limit[0].GetHard() != 1<<30 || limit[0].GetSoft() != 1<<30 {
				t.Errorf("wrong limits: %v", limit)
			}
			if text := adjustment.GetLinux().GetResources().GetUnified()["rdma.max"]; text !=
				"mlx5_0 hca_handle=2 hca_object=50" {
				t.Errorf("wrong value of rdma.max: %q", text)
			}
			if adjustment, err := f.create("a-0"); err != nil || adjustment != nil {
				t.Errorf("got adjustment %v, error %v for a container that does not name the claim", adjustment, err)
			}
			if states := f.boxes.States(); states[0].Interfaces[0].Interface != "net1" {
				t.Errorf("interfaces = %+v, want net1", states[0].Interfaces)
			}
		})
	}
}

// After its kernel module has been reloaded, an RDMA device has different device nodes, and the old nodes may belong to
// another pod.
func TestContainersOfAnRDMADeviceThatIsGone(t *testing.T) {
	f := withRDMA(t, cnichain.RDMAShared)
	f.node.RemoveRDMA("mlx5_0")
	f.node.AddRDMA("mlx5_0", "up0", "", cnichain.RDMAShared)
	if _, err := f.create("a-0", "claim-a"); err == nil || !strings.Contains(err.Error(),
		"RDMA device mlx5_0 of claim ns/claim-a is no longer in the pod") {
		t.Errorf("error = %v, want an error about the missing RDMA device", err)
	}
	f.must(f.sweeper().Sweep())
	if states := f.boxes.States(); states[0].Interfaces[0].Missing != "RDMA device mlx5_0" {
		t.Errorf("interfaces = %+v, want RDMA device mlx5_0 as missing", states[0].Interfaces)
	}
	f.node.Fail("rdma list", errors.New("interrupted"))
	if _, err := f.create("a-0", "claim-a"); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error = %v, want \"interrupted\"", err)
	}
	<-f.boxes.StopSandbox("a-0")
	f.expect("host [up0 up1] pods [] leases []")
}

// If a claim's device has no RDMA device, or has an RDMA device that cannot leave the host, the claim is rejected
// before anything is changed.
func TestClaimOfADeviceWithoutRDMA(t *testing.T) {
	f := newFixture(t)
	topology := testTopology()
	topology.Spec.Steps[0].RDMA = &v1alpha1.StepRDMA{}
	f.must(f.cluster.topologies.GetStore().Update(topology))
	results, err := f.dra.PrepareResourceClaims(context.Background(),
		[]*resourceapi.ResourceClaim{allocatedClaim("c", "up0", "a")})
	f.must(err)
	if err := results["c"].Err; err == nil || !strings.Contains(err.Error(),
		"cannot provide RDMA devices of device up0: it has none") {
		t.Errorf("error = %v, want an error about the missing RDMA devices", err)
	}
	f.node.AddRDMA("mlx5_0", "up0", "", cnichain.RDMAExclusive)
	results, err = f.dra.PrepareResourceClaims(context.Background(),
		[]*resourceapi.ResourceClaim{allocatedClaim("c", "up0", "a")})
	f.must(err)
	f.must(results["c"].Err)
}

// A NIC that does not respond does not affect pods that do not use its RDMA devices.
func TestClaimWithoutRDMANextToASickCard(t *testing.T) {
	f := newFixture(t)
	f.node.AddRDMA("mlx5_0", "up0", "", cnichain.RDMAShared)
	f.node.Fail("rdma list", errors.New("no answer"))
	results, err := f.dra.PrepareResourceClaims(context.Background(),
		[]*resourceapi.ResourceClaim{allocatedClaim("c", "up1", "a")})
	f.must(err)
	f.must(results["c"].Err)
}

// To list ports, the kernel queries the hardware, which may be slow. The creation of containers must not wait for this,
// because the runtime holds a node-wide lock in the meantime.
func TestContainersDoNotWaitForCards(t *testing.T) {
	f := withRDMA(t, cnichain.RDMAShared)
	f.node.Fail("rdma ports", errors.New("the hardware was queried"))
	_, err := f.create("a-0", "claim-a")
	f.must(err)
}

// The application has renamed its RDMA device in such a way that the line in rdma.max would limit a different device.
func TestLimitOfAnRDMADeviceWithAStrangeName(t *testing.T) {
	for name, fine := range map[string]bool{
		"ibp1s0": true, "mlx5_1 hca_handle=1": false, "a\nmlx5_1": false, "": false, "\u00a0": false,
	} {
		f := withRDMA(t, cnichain.RDMAExclusive)
		f.node.RenameRDMA("mlx5_0", name)
		adjustment, err := f.create("a-0", "claim-a")
		if fine {
			f.must(err)
			if text := adjustment.GetLinux().GetResources().GetUnified()["rdma.max"]; text !=
				name+" hca_handle=2 hca_object=50" {
				t.Errorf("wrong value of rdma.max: %q", text)
			}
		} else if err == nil || !strings.Contains(err.Error(), "cannot be limited") {
			t.Errorf("%q: error = %v, adjustment = %v, want \"cannot be limited\"", name, err, adjustment)
		}
	}
}

// Two RDMA devices in different namespaces have the same name. The line in rdma.max includes the device index; without
// it, the kernel would reject the line or limit the other device.
func TestLimitOfAnRDMADeviceWhoseNameIsNotUnique(t *testing.T) {
	f := withRDMA(t, cnichain.RDMAExclusive)
	devices, err := f.node.RDMADevices(f.boxes.States()[0].Pin)
	f.must(err)
	f.node.AddRDMA("mlx5_0", "up1", "", cnichain.RDMAExclusive)
	adjustment, err := f.create("a-0", "claim-a")
	f.must(err)
	want := fmt.Sprintf("mlx5_0 index=%d hca_handle=2 hca_object=50", devices[0].Index)
	if text := adjustment.GetLinux().GetResources().GetUnified()["rdma.max"]; text != want {
		t.Errorf("rdma.max = %q, want %q", text, want)
	}
	f.node.Fail("rdma names", errors.New("interrupted"))
	if _, err := f.create("a-0", "claim-a"); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error = %v, want \"interrupted\"", err)
	}
}
