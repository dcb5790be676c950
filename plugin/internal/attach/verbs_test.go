package attach

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

func environmentOf(record *claims.Record, steps []executor.StepRecord, request string) []string {
	return verbsEnv(record, [][]executor.StepRecord{steps}, Part{ClaimUID: record.Claim.UID, Request: request})
}

// A container that names one request of a claim gets variables for the RDMA devices of that request; containers with a
// claim that several pods may share get none.
func TestEnvironmentOfRequests(t *testing.T) {
	step := func(ifName, device string) executor.StepRecord {
		return executor.StepRecord{Claim: cnichain.Claim{UID: "a"}, IfName: ifName,
			Step:  cnichain.PlanStep{Device: &cnichain.Device{Pool: "n/" + device, Name: device}},
			Verbs: &executor.Verbs{Devices: []cnichain.VerbsDevice{{Name: device, Verbs: "uverbs1"}}}}
	}
	steps := []executor.StepRecord{step("net1", "mlx5_0"), step("net2", "mlx5_1")}
	record := claims.Record{Claim: cnichain.Claim{UID: "a"}, Devices: []claims.HeldDevice{
		{Request: "one", Pool: "n/mlx5_0", Name: "mlx5_0"}, {Request: "two", Pool: "n/mlx5_1", Name: "mlx5_1"}}}
	second := []string{"DRA_NETWORK_NET2_RDMA_DEVICE=mlx5_1", "DRA_NETWORK_NET2_VERBS_DEVICE=uverbs1"}
	if diff := cmp.Diff(second, environmentOf(&record, steps, "two")); diff != "" {
		t.Errorf("wrong environment (-want +got):\n%s", diff)
	}
	if env := environmentOf(&record, steps, ""); len(env) != 2*len(second) {
		t.Errorf("wrong environment of the whole claim: %v", env)
	}
	steps[0].IfName, steps[1].IfName = "net-1", "net.1" // a container that names both would get a mix of values
	for _, request := range []string{"one", "two", ""} {
		if env := environmentOf(&record, steps, request); env != nil {
			t.Errorf("environment of request %q with ambiguous variables = %v, want none", request, env)
		}
	}
	record.Shareable = true
	if env := environmentOf(&record, steps, "two"); env != nil {
		t.Errorf("environment of a shared claim = %v, want none", env)
	}
}

func TestEnvironmentOfInterfaces(t *testing.T) {
	device := func(name string, gids ...cnichain.GID) cnichain.VerbsDevice {
		return cnichain.VerbsDevice{Name: name, Verbs: "uverbs7", GIDs: gids}
	}
	gid := func(ifName string, index int, kind string) cnichain.GID {
		return cnichain.GID{Port: 1, Index: index, GID: "g", Type: kind, Interface: ifName}
	}
	step := func(claim, ifName string, devices ...cnichain.VerbsDevice) executor.StepRecord {
		return executor.StepRecord{Claim: cnichain.Claim{UID: claim}, IfName: ifName,
			Verbs: &executor.Verbs{Devices: devices}}
	}
	known := func(prefix, index, kind string) []string {
		return []string{prefix + "RDMA_DEVICE=mlx5_0", prefix + "VERBS_DEVICE=uverbs7", prefix + "RDMA_PORT=1",
			prefix + "GID_INDEX=" + index, prefix + "GID=g", prefix + "GID_TYPE=" + kind}
	}
	for name, test := range map[string]struct {
		steps []executor.StepRecord
		want  []string
	}{
		"the first of each interface": {
			[]executor.StepRecord{step("a", "net1", device("mlx5_0", gid("net1", 3, "RoCE v2"),
				gid("net1", 2, "RoCE v1"),
				gid("net1.7", 5, "RoCE v2")))},
			append(known("DRA_NETWORK_NET1_", "3", "RoCE v2"), known("DRA_NETWORK_NET1_7_", "5", "RoCE v2")...),
		},
		"InfiniBand": {[]executor.StepRecord{step("a", "ib0", device("mlx5_0", gid("", 0, "IB")))},
			known("DRA_NETWORK_IB0_", "0", "IB")},
		"of the second device": {[]executor.StepRecord{step("a", "net1", device("mlx5_1"),
			device("mlx5_0", gid("net1", 3, "RoCE v2")))}, known("DRA_NETWORK_NET1_", "3", "RoCE v2")},
		"not known": {[]executor.StepRecord{step("a", "net1", device("mlx5_0"))},
			[]string{"DRA_NETWORK_NET1_RDMA_DEVICE=mlx5_0", "DRA_NETWORK_NET1_VERBS_DEVICE=uverbs7"}},
		"another claim's": {[]executor.StepRecord{step("b", "net1", device("mlx5_0")),
			{Claim: cnichain.Claim{UID: "a"}}}, nil},
		"names that variables can't tell apart": {[]executor.StepRecord{
			step("a", "net-1", device("mlx5_0", gid("net-1", 3, "RoCE v2"))),
			step("a", "net.1", device("mlx5_0", gid("net.1", 5, "RoCE v2"))),
			step("a", "net", device("mlx5_0", gid("net", 7, "RoCE v2"))),
		}, known("DRA_NETWORK_NET_", "7", "RoCE v2")},
		"one of another claim that variables can't tell apart": {[]executor.StepRecord{
			step("a", "net-1", device("mlx5_0", gid("net-1", 3, "RoCE v2"))),
			step("b", "net.1", device("mlx5_1")),
			step("a", "net", device("mlx5_0", gid("net", 7, "RoCE v2"))),
		}, known("DRA_NETWORK_NET_", "7", "RoCE v2")},
		"renamed by the application": {[]executor.StepRecord{step("a", "net1", device("mlx5_0\nLD_PRELOAD=x"))}, nil},
		"unreadable": {[]executor.StepRecord{step("a", "net1",
			cnichain.VerbsDevice{Name: "mlx5_0"})}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, environmentOf(&claims.Record{Claim: cnichain.Claim{UID: "a"}}, test.steps,
				"")); diff != "" {
				t.Errorf("wrong environment (-want +got):\n%s", diff)
			}
		})
	}
}

// A claim's files are identified by the claim's name, which a later claim may reuse, so they must never be written if
// the claim may have been released. While the sandbox is busy, the files are left to the next sweep.
func TestFilesOfReleasedClaimsAreNotWritten(t *testing.T) {
	f := newFixture(t)
	f.node.AddRDMA("mlx5_0", "up0", "", cnichain.RDMAExclusive)
	record := f.prepared("claim-a", "a", "up0")
	record.Plans[0].Steps[0].RDMA = &v1alpha1.StepRDMA{}
	f.must(f.attach("a-0", record))
	box := f.boxes.find("a-0")
	pin := box.view().pin
	f.node.AddPodLink(pin, "a") // its GIDs come first
	f.must(box.acquire(t.Context()))
	f.must(f.sweeper().Sweep())
	box.release()
	if f.described != 1 {
		t.Errorf("files were written %d times, want 1", f.described)
	}
	f.must(f.sweeper().Sweep())
	f.must(f.sweeper().Sweep())
	if f.described != 2 || len(f.unguarded) > 0 {
		t.Errorf("files were written %d times, want 2, and without a guard for %q", f.described, f.unguarded)
	}
}

// Files that could not be written, for example because the driver was not registered with the kubelet yet, are written
// by a later sweep.
func TestFilesThatWereNotWrittenAreWrittenLater(t *testing.T) {
	f := newFixture(t)
	f.node.AddRDMA("mlx5_0", "up0", "", cnichain.RDMAExclusive)
	record := f.prepared("claim-a", "a", "up0")
	record.Plans[0].Steps[0].RDMA = &v1alpha1.StepRDMA{}
	f.must(f.attach("a-0", record))
	pin := f.boxes.find("a-0").view().pin
	f.node.AddPodLink(pin, "a") // its GIDs come first
	f.writesFail = true
	f.must(f.sweeper().Sweep())
	f.writesFail = false
	f.must(f.sweeper().Sweep())
	f.must(f.sweeper().Sweep())
	if f.described != 3 { // at the attach, the failed write, and the retry
		t.Errorf("files were written %d times, want 3", f.described)
	}
}
