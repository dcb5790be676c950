package plugin

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// verbsEnv returns the environment variables for a claim's containers, except the variable that indicates the
// attachment.
func (f *fixture) verbsEnv(claim string) []string {
	f.Helper()
	data, err := os.ReadFile(filepath.Join(f.cdiDir(), v1alpha1.DriverName+"-"+claim+".json"))
	f.must(err)
	var spec cdispecs.Spec
	f.must(json.Unmarshal(data, &spec))
	return slices.DeleteFunc(spec.Devices[0].ContainerEdits.Env,
		func(variable string) bool { return strings.HasPrefix(variable, "DRA_NETWORK_CLAIM_") })
}

// Containers that name a claim find the GID for the claim's address in their environment and in the claim's metadata
// file.
func TestContainersAreToldGIDs(t *testing.T) {
	f := withRDMA(t, cnichain.RDMAExclusive)
	if diff := cmp.Diff([]string{
		"DRA_NETWORK_NET1_INTERFACE=net1", "DRA_NETWORK_NET1_REQUEST=r", "DRA_NETWORK_NET1_MAC=02:00:00:00:00:01",
		"DRA_NETWORK_NET1_IPS=10.0.0.2/24",
		`DRA_NETWORK_NET1_JSON={"interface":"net1","request":"r","pool":"n/up0","device":"up0",` +
			`"mac":"02:00:00:00:00:01","ips":["10.0.0.2/24"]}`,
		"DRA_NETWORK_NET1_RDMA_DEVICE=mlx5_0", "DRA_NETWORK_NET1_VERBS_DEVICE=uverbs0", "DRA_NETWORK_NET1_RDMA_PORT=1",
		"DRA_NETWORK_NET1_GID_INDEX=3", "DRA_NETWORK_NET1_GID=0000:0000:0000:0000:0000:ffff:0a00:0002",
		"DRA_NETWORK_NET1_GID_TYPE=RoCE v2",
	}, f.verbsEnv("claim-a")); diff != "" {
		t.Errorf("wrong environment (-want +got):\n%s", diff)
	}
	attributes := f.described[0].Metadata.Attributes
	for name, want := range map[string]string{"rdmaDevice": "mlx5_0", "verbsDevice": "uverbs0", "gidType": "RoCE v2",
		"gid": "0000:0000:0000:0000:0000:ffff:0a00:0002"} {
		if have := attributes[v1alpha1.DriverName+"/"+name].StringValue; have == nil || *have != want {
			t.Errorf("metadata contains %s = %v, want %s", name, have, want)
		}
	}
	for name, want := range map[string]int64{"gidIndex": 3, "rdmaPort": 1} {
		if have := attributes[v1alpha1.DriverName+"/"+name].IntValue; have == nil || *have != want {
			t.Errorf("metadata contains %s = %v, want %d", name, have, want)
		}
	}
	if interfaces := f.boxes.States()[0].Interfaces; len(interfaces[0].RDMA) != 1 ||
		len(interfaces[0].RDMA[0].GIDs) != 2 {
		t.Errorf("interfaces = %+v, want one RDMA device with two GIDs", interfaces)
	}
}

// Once the driver has read values that the kernel has changed or added, containers that are created afterwards get the
// new values.
func TestGIDsThatChange(t *testing.T) {
	f := withRDMA(t, cnichain.RDMAExclusive)
	index := func() string {
		for _, variable := range f.verbsEnv("claim-a") {
			if value, found := strings.CutPrefix(variable, "DRA_NETWORK_NET1_GID_INDEX="); found {
				return value
			}
		}
		return "none"
	}
	f.must(f.sweeper().Sweep())
	if len(f.described) != 1 || len(f.lost) != 0 {
		t.Errorf("without a change, %d files were written, want 1; reported %q", len(f.described), f.lost)
	}
	f.node.AddPodLink(f.boxes.States()[0].Pin, "a") // its entries come first
	f.must(f.sweeper().Sweep())
	if index() != "5" || len(f.described) != 2 ||
		*f.described[1].Metadata.Attributes["dra.networking/gidIndex"].IntValue != 5 {
		t.Errorf("index = %s, %d files written, want index 5 and 2 files", index(), len(f.described))
	}
	f.node.DelayGIDs(1)
	f.must(f.sweeper().Sweep())
	if index() != "none" {
		t.Errorf("index = %s although the kernel has no GIDs, want none", index())
	}
	if text := f.boxes.States()[0].Interfaces[0].RDMAUnknown; !strings.Contains(text, "10.0.0.2 on net1") {
		t.Errorf("RDMAUnknown = %q, want 10.0.0.2 on net1", text)
	}
	f.must(f.sweeper().Sweep())
	if index() != "5" {
		t.Errorf("index = %s, want 5", index())
	}
	f.crash()
	f.node.AddPodLink(f.boxes.States()[0].Pin, "b") // while no driver is running
	before := len(f.described)
	f.start("boot-1")
	if index() != "7" { // the journal contains 3
		t.Errorf("index of the gate after a restart = %s, want 7", index())
	}
	f.must(f.sweeper().Sweep())
	if described := f.described[before:]; len(described) != 1 ||
		*described[0].Metadata.Attributes["dra.networking/gidIndex"].IntValue != 7 {
		t.Errorf("after a restart, wrong files were written: %+v", described)
	}
}

// If several pods share a claim, their interfaces differ, but they share one gate.
func TestContainersOfASharedClaimAreNotToldGIDs(t *testing.T) {
	f := newFixture(t)
	f.node.AddRDMA("mlx5_0", "up0", "", cnichain.RDMAShared)
	record := f.limited(f.prepared("claim-a", "a", "up0"))
	record.Shareable = true
	f.must(f.claims.Hold(record, asItIs))
	f.must(f.attach("a-0", record))
	if env := f.verbsEnv("claim-a"); len(env) > 0 {
		t.Errorf("environment = %q, want none", env)
	}
	if _, has := f.described[0].Metadata.Attributes["dra.networking/gidIndex"]; has {
		t.Error("the metadata contains a GID index")
	}
}

// If GIDs cannot be read, a pod starts without them, and netdra shows the reason.
func TestGIDsThatCannotBeRead(t *testing.T) {
	f := newFixture(t)
	f.node.AddRDMA("mlx5_0", "up0", "", cnichain.RDMAShared)
	f.node.Fail("gids", errors.New("no such file"))
	f.must(f.attach("a-0", f.limited(f.prepared("claim-a", "a", "up0"))))
	if text := f.boxes.States()[0].Interfaces[0].RDMAUnknown; !strings.Contains(text, "no such file") {
		t.Errorf("RDMAUnknown = %q, want \"no such file\"", text)
	}
	if env := f.verbsEnv("claim-a"); strings.Contains(strings.Join(env, " "), "GID_INDEX") {
		t.Errorf("environment = %q, want no GID_INDEX", env)
	}
}
