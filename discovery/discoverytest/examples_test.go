package discoverytest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// The slices published for the machines match the golden files, which also contain the policies.
func TestExamplesAreThoseOfTheGoldenFiles(t *testing.T) {
	const golden = "../../slices/testdata"
	examples := discoverytest.Examples()
	files, err := filepath.Glob(golden + "/*.yaml")
	if err != nil || len(files) != len(examples) {
		t.Fatalf("got %d golden files for %d examples: %v", len(files), len(examples), err)
	}
	for name, h := range examples {
		t.Run(name, func(t *testing.T) {
			policies, want := readGolden(t, filepath.Join(golden, name+".yaml"))
			facts := recordedFacts(t, h)
			decision := policy.Resolve(facts, policies, policy.Node{Name: "worker-1"})
			plugins := sets.New("macvlan", "ipvlan", "host-device", "sriov", "bridge", "ovn-k8s-cni-overlay")
			result, err := draslices.Build("worker-1", decision, draslices.Features{CNIBinaries: plugins})
			if err != nil || len(facts.Problems)+len(decision.Problems)+len(result.Problems) > 0 {
				t.Fatal(err, facts.Problems, decision.Problems, result.Problems)
			}
			if diff := cmp.Diff(want, devices(result)); diff != "" {
				t.Errorf("published (-golden +got):\n%s", diff)
			}
		})
	}
}

// readGolden reads the policies and the devices from a golden file. Devices are keyed by pool and name.
func readGolden(
	t *testing.T, file string,
) (policies []v1alpha1.DeviceExposurePolicy, devices map[string]resourceapi.Device) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	devices = map[string]resourceapi.Device{}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		if !strings.Contains(document, "kind: ResourceSlice") {
			policies = append(policies, v1alpha1.DeviceExposurePolicy{})
			if err := yaml.UnmarshalStrict([]byte(document), &policies[len(policies)-1]); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var slice resourceapi.ResourceSlice
		if err := yaml.UnmarshalStrict([]byte(document), &slice); err != nil {
			t.Fatal(err)
		}
		for _, d := range slice.Spec.Devices {
			devices[slice.Spec.Pool.Name+" "+d.Name] = d
		}
	}
	return policies, devices
}

// devices returns the published devices, keyed by pool and name.
func devices(result draslices.Result) map[string]resourceapi.Device {
	devices := map[string]resourceapi.Device{}
	for name, pool := range result.Resources.Pools {
		for _, slice := range pool.Slices {
			for _, d := range slice.Devices {
				devices[name+" "+d.Name] = d
			}
		}
	}
	return devices
}

// recordedFacts writes the machine's recording to a directory, opens that directory as users do, and returns the facts.
func recordedFacts(t *testing.T, h *discoverytest.Host) discovery.Facts {
	t.Helper()
	dir := t.TempDir()
	if err := h.Write(dir); err != nil {
		t.Fatal(err)
	}
	recording, err := discovery.OpenRecording(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	sources, err := recording.Sources()
	if err != nil {
		t.Fatal(err)
	}
	facts, err := discovery.Read(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

func TestWriteRefusesToOverwrite(t *testing.T) {
	dir := t.TempDir()
	if err := discoverytest.SRIOV().Write(dir); err != nil {
		t.Fatal(err)
	}
	if err := discoverytest.Virtio().Write(dir); err == nil ||
		!strings.Contains(err.Error(), "choose another directory") {
		t.Errorf("error for a directory in use = %v, want one that recommends another directory", err)
	}
}
