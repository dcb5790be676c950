package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// askAgain is how long a negative result remains valid. It expires because an administrator may enable the missing
// feature.
const askAgain = 10 * time.Minute

// firstCharging is the first release whose scheduler remembers, from one pod to the next, how much each shared device
// consumes from its counters (kubernetes/kubernetes#139034).
const firstCharging = "1.36.2"

// apiServer detects which ResourceSlice fields the API server stores, since the API server drops the fields of disabled
// features. It uses dry runs, because no API reports which features are enabled.
type apiServer struct {
	client kubernetes.Interface
	node   string
	clock  clock.PassiveClock
	// lists and groups enable optional features.
	lists, groups bool

	mu    sync.Mutex
	known *capabilities
	asked time.Time
}

// capabilities describes which of the API features that the driver uses are available in the cluster.
type capabilities struct {
	missing draslices.MissingFeatures
	// groups reports whether the API server stores compatibility groups.
	groups bool
	// problems describes each missing feature and how to enable it.
	problems []string
	// refusal is the reason why no devices can be published; it is nil if devices can be published.
	refusal error
}

// feature is a feature of the API server, together with a slice that uses only this feature.
type feature struct {
	name  string
	probe resourceapi.ResourceSliceSpec
	// kept reports whether the stored slice still contains the feature's fields.
	kept func(resourceapi.ResourceSliceSpec) bool
	// effect describes the consequence of the feature being disabled, and lack applies it to the capabilities.
	effect string
	lack   func(*capabilities)
}

// detect returns the cached capabilities or, if there are none, queries the API server. As long as a feature is
// missing, the cached result expires after askAgain; if the API server does not respond then, the cached result remains
// valid.
//
// The lock is held during the requests, so that concurrent callers share one query. The only callers are the publisher
// and its error handler, and no pod waits for them.
func (s *apiServer) detect(ctx context.Context) (capabilities, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known.problems) > 0 && s.clock.Since(s.asked) >= askAgain {
		found, err := s.evaluate(ctx)
		if err == nil {
			s.known, s.asked = &found, s.clock.Now()
		} else if s.known == nil {
			return capabilities{}, fmt.Errorf("cannot detect the features of the API server: %w", err)
		}
	}
	return *s.known, s.known.refusal
}

// dropped records that the API server has dropped the fields of these features. This overrides the results of earlier
// probes: several API servers may be reachable under one name, and a feature may be enabled on only some of them.
func (s *apiServer) dropped(features []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := capabilities{problems: []string{}}
	if s.known != nil {
		found = *s.known
		found.problems = slices.Clone(found.problems)
	}
	for _, candidate := range s.features() {
		if slices.Contains(features, candidate.name) {
			found.without(candidate)
		}
	}
	s.known, s.asked = &found, s.clock.Now()
}

func (c *capabilities) without(f feature) {
	f.lack(c)
	problem := fmt.Sprintf("the feature %s is disabled in the API server: %s; enable it on all components", f.name,
		f.effect)
	if !slices.Contains(c.problems, problem) {
		c.problems = append(c.problems, problem)
	}
}

// evaluate detects which slice fields the API server stores. It uses dry runs and does not rely on the version, because
// the behavior also depends on feature gates.
func (s *apiServer) evaluate(ctx context.Context) (capabilities, error) {
	var found capabilities
	info, err := s.client.Discovery().ServerVersion()
	if err != nil {
		return found, err
	}
	// Use ParseGeneric, which ignores suffixes: a suffix that a vendor appends to the version does not denote a
	// pre-release.
	if release, err := version.ParseGeneric(info.GitVersion); err == nil &&
		release.LessThan(version.MustParseGeneric(firstCharging)) {
		found.missing.Charging = true
		found.problems = append(found.problems, fmt.Sprintf(
			"Kubernetes %s ignores the exclusions of shared devices, so devices with exclusions are not published; "+
				"upgrade to 1.36.2 or newer", info.GitVersion))
	}
	found.groups = s.groups
	for _, candidate := range s.features() {
		kept, err := s.keeps(ctx, candidate)
		if err != nil {
			return found, err
		}
		if !kept {
			found.without(candidate)
		}
	}
	return found, nil
}

var errNoLists = errors.New("the API server rejects list attributes, which --list-attributes requires; enable the " +
	"feature DRAListTypeAttributes on all components, or remove the option from the nodes and the controller")

// keeps reports whether the API server would store the feature's slice with all of its fields.
func (s *apiServer) keeps(ctx context.Context, candidate feature) (bool, error) {
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"},
		Spec: *candidate.probe.DeepCopy()}
	slice.Spec.Driver, slice.Spec.NodeName = v1alpha1.DriverName, &s.node
	slice.Spec.Pool = resourceapi.ResourcePool{Name: s.node + "/probe", Generation: 1, ResourceSliceCount: 1}
	stored, err := s.client.ResourceV1().ResourceSlices().Create(ctx, slice,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	// A dry run is subject to the same strategy and validation as any other write, but nothing is stored.
	if apierrors.IsInvalid(err) { // without the dropped field, the object is invalid
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return candidate.kept(stored.Spec), nil
}

// These are feature gates of the API server.
const (
	partitionableDevices = "DRAPartitionableDevices"
	consumableCapacity   = "DRAConsumableCapacity"
	deviceTaints         = "DRADeviceTaints"
	compatibilityGroups  = "DRADeviceCompatibilityGroups"
	listAttributes       = "DRAListTypeAttributes"
)

func (s *apiServer) features() []feature {
	counters := map[string]resourceapi.Counter{"counter": {Value: resource.MustParse("1")}}
	features := []feature{{
		name: partitionableDevices, effect: "devices that exclude each other are not published",
		probe: resourceapi.ResourceSliceSpec{SharedCounters: []resourceapi.CounterSet{{Name: "set",
			Counters: counters}}},
		kept: func(spec resourceapi.ResourceSliceSpec) bool { return len(spec.SharedCounters) > 0 },
		lack: func(c *capabilities) { c.missing.Counters = true },
	}, {
		name: consumableCapacity, effect: "devices that pods share are not published",
		probe: withDevice(resourceapi.Device{AllowMultipleAllocations: ptr.To(true)}),
		kept:  keepsDevice(func(d resourceapi.Device) bool { return d.AllowMultipleAllocations != nil }),
		lack:  func(c *capabilities) { c.missing.Sharing = true },
	}, {
		name: deviceTaints, effect: "devices that should not be used are published without a taint",
		probe: withDevice(resourceapi.Device{Taints: []resourceapi.DeviceTaint{{Key: taintKey,
			Effect: resourceapi.DeviceTaintEffectNoSchedule}}}),
		kept: keepsDevice(func(d resourceapi.Device) bool { return len(d.Taints) > 0 }),
		lack: func(c *capabilities) { c.missing.Taints = true },
	}}
	if s.groups {
		features = append(features, feature{
			name: compatibilityGroups, effect: "--compatibility-groups does nothing",
			probe: withDevice(resourceapi.Device{ConsumesCounters: []resourceapi.DeviceCounterConsumption{
				{CounterSet: "set", Counters: counters, CompatibilityGroups: []string{"group"}},
			}}),
			kept: keepsDevice(func(d resourceapi.Device) bool {
				return len(d.ConsumesCounters) > 0 && len(d.ConsumesCounters[0].CompatibilityGroups) > 0
			}),
			lack: func(c *capabilities) { c.groups = false },
		})
	}
	if s.lists {
		features = append(features, feature{
			name: listAttributes, effect: "nothing is published",
			probe: withDevice(
				resourceapi.Device{
					Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
						"list": {StringValues: []string{"one"}},
					},
				},
			),
			kept: keepsDevice(func(d resourceapi.Device) bool { return len(d.Attributes["list"].StringValues) > 0 }),
			// Device classes expect lists, so no device would match without them.
			lack: func(c *capabilities) { c.refusal = errNoLists },
		})
	}
	return features
}

func withDevice(device resourceapi.Device) resourceapi.ResourceSliceSpec {
	device.Name = "probe"
	return resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{device}}
}

func keepsDevice(kept func(resourceapi.Device) bool) func(resourceapi.ResourceSliceSpec) bool {
	return func(spec resourceapi.ResourceSliceSpec) bool { return len(spec.Devices) > 0 && kept(spec.Devices[0]) }
}
