package publish

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apiversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// testServer behaves like an API server that drops the fields of disabled features. Without these fields, an object may
// be incomplete and therefore invalid.
type testServer struct {
	off  sets.Set[string]
	fail error
	asks int
}

func (s *testServer) client(t *testing.T, version string) *fake.Clientset {
	t.Helper()
	client := fake.NewClientset()
	served, ok := client.Discovery().(*fakediscovery.FakeDiscovery)
	if !ok {
		t.Fatal("client-go returns another type of fake discovery client")
	}
	served.FakedServerVersion = &apiversion.Info{GitVersion: version}
	client.PrependReactor("create", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateActionImpl)
		if !ok || len(create.CreateOptions.DryRun) != 1 {
			t.Errorf("action %v is not a dry run", action)
		}
		s.asks++
		slice, ok := create.Object.DeepCopyObject().(*resourceapi.ResourceSlice)
		if !ok || s.fail != nil {
			return true, nil, s.fail
		}
		return s.store(slice)
	})
	return client
}

func (s *testServer) store(slice *resourceapi.ResourceSlice) (bool, runtime.Object, error) {
	if s.off.Has("DRAPartitionableDevices") && len(slice.Spec.SharedCounters) > 0 {
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Group: resourceapi.GroupName, Kind: "ResourceSlice"},
			"probe", nil)
	}
	if s.off.Has("DRAListTypeAttributes") && len(slice.Spec.Devices) > 0 && len(slice.Spec.Devices[0].Attributes) > 0 {
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Group: resourceapi.GroupName, Kind: "ResourceSlice"},
			"probe", nil)
	}
	for i := range slice.Spec.Devices {
		device := &slice.Spec.Devices[i]
		if s.off.Has("DRAConsumableCapacity") {
			device.AllowMultipleAllocations = nil
		}
		if s.off.Has("DRADeviceTaints") {
			device.Taints = nil
		}
		for j := range device.ConsumesCounters {
			if s.off.Has("DRADeviceCompatibilityGroups") {
				device.ConsumesCounters[j].CompatibilityGroups = nil
			}
		}
	}
	return true, slice, nil
}

func TestWhatTheAPIServerKeeps(t *testing.T) {
	for _, test := range []struct {
		name, version string
		off           []string
		lists, groups bool
		want          capabilities
		problems      []string
		err           string
	}{
		{name: "all", version: "v1.37.1", lists: true, groups: true, want: capabilities{groups: true}},
		{name: "unwanted features are not queried", version: "v1.36.3",
			off: []string{"DRAListTypeAttributes", "DRADeviceCompatibilityGroups"}},
		{name: "old scheduler", version: "v1.36.1",
			want: capabilities{missing: draslices.MissingFeatures{Charging: true}}, problems: []string{"1.36.2"}},
		{name: "a vendor's version", version: "v1.36.2-gke.1034000"},
		{
			name: "features that are off", version: "v1.37.1", off: []string{"DRAPartitionableDevices",
				"DRAConsumableCapacity", "DRADeviceTaints"},
			want:     capabilities{missing: draslices.MissingFeatures{Counters: true, Sharing: true, Taints: true}},
			problems: []string{"DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints"},
		},
		{name: "no groups", version: "v1.37.1", groups: true, off: []string{"DRADeviceCompatibilityGroups"},
			problems: []string{"DRADeviceCompatibilityGroups"}},
		{name: "no lists", version: "v1.37.1", lists: true, off: []string{"DRAListTypeAttributes"},
			err: "--list-attributes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			fake := &testServer{off: sets.New(test.off...)}
			server := &apiServer{client: fake.client(t, test.version), node: "n",
				clock: testingclock.NewFakeClock(time.Unix(0, 0)), lists: test.lists, groups: test.groups}
			got, err := server.detect(context.Background())
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("wrong error: %v", err)
				}
				return
			}
			if err != nil || got.missing != test.want.missing || got.groups != test.want.groups ||
				len(got.problems) != len(test.problems) {
				t.Fatalf("got %+v, error %v; want %+v", got, err, test.want)
			}
			for i, problem := range test.problems {
				if !strings.Contains(got.problems[i], problem) {
					t.Errorf("problem %q does not mention %s", got.problems[i], problem)
				}
			}
		})
	}
}

// A cached result is valid until enough time has passed for a missing feature to have been enabled, or until a response
// contradicts the result. Before the first result, every call queries the API server; after that, the cached result is
// used while the server does not respond.
func TestTheAPIServerIsAskedAgain(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	fake := &testServer{fail: errors.New("timeout")}
	server := &apiServer{client: fake.client(t, "v1.37.1"), node: "n", clock: clock}
	detect := func() (capabilities, int, error) {
		fake.asks = 0
		got, err := server.detect(context.Background())
		return got, fake.asks, err
	}
	if _, asks, err := detect(); err == nil || asks != 1 {
		t.Errorf("error = %v after %d queries, want an error after 1", err, asks)
	}
	fake.fail, fake.off = nil, sets.New("DRADeviceTaints")
	for _, step := range []struct {
		what  string
		do    func()
		taint bool // missing
		asks  int
	}{
		{"first", func() {}, true, 3},
		{"known", func() {}, true, 0},
		{"switched on", func() { fake.off = nil }, true, 0},
		{"later", func() { clock.Step(askAgain) }, false, 3},
		{"much later", func() { clock.Step(100 * askAgain) }, false, 0},
		{"dropped after all", func() { server.dropped([]string{"DRADeviceTaints"}) }, true, 0},
		{"no answer", func() { clock.Step(askAgain); fake.fail = errors.New("timeout") }, true, 1},
		{"an answer", func() { fake.fail = nil }, false, 3},
	} {
		step.do()
		if got, asks, err := detect(); err != nil || got.missing.Taints != step.taint || asks != step.asks {
			t.Errorf("%s: missing taints: %t, %d queries, error %v", step.what, got.missing.Taints, asks, err)
		}
	}
}

// A negative result is also cached, so the API server is not queried again in every computation.
func TestRefusedListsAreRemembered(t *testing.T) {
	fake := &testServer{off: sets.New("DRAListTypeAttributes")}
	server := &apiServer{client: fake.client(t, "v1.37.1"), node: "n",
		clock: testingclock.NewFakeClock(time.Unix(0, 0)), lists: true}
	for range 3 {
		if _, err := server.detect(context.Background()); err == nil ||
			!strings.Contains(err.Error(), "--list-attributes") {
			t.Errorf("error = %v, want a hint at --list-attributes", err)
		}
	}
	if fake.asks != 4 {
		t.Errorf("got %d queries, want 4", fake.asks)
	}
}
