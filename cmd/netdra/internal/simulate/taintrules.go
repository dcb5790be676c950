package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TaintRules returns the DeviceTaintRules in a cluster (KEP-5055), sorted by name, without their status. It returns
// none if the kind is not installed. get reads a path from the API server.
//
// Kubernetes 1.36 only serves the kind as v1beta2, which is disabled by default and has the same specification.
func TaintRules(ctx context.Context, get func(ctx context.Context, path string) ([]byte, error),
) ([]resourceapi.DeviceTaintRule, error) {
	for _, version := range []string{"v1", "v1beta2"} {
		data, err := get(ctx, "/apis/"+resourceapi.GroupName+"/"+version+"/devicetaintrules")
		if apierrors.IsNotFound(err) {
			continue
		}
		var list struct {
			Items []resourceapi.DeviceTaintRule `json:"items"`
		}
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list the DeviceTaintRules: %w; devices that they take out of service count "+
				"as free; ask for the ClusterRole dra-network-capacity", err)
		}
		slices.SortFunc(list.Items, func(a, b resourceapi.DeviceTaintRule) int {
			return strings.Compare(a.Name, b.Name)
		})
		return list.Items, nil
	}
	return nil, nil
}

// withTaints applies the taints from rules to slices, as kube-scheduler does. Slices that get a taint are copied. The
// equivalent package resourceslice/tracker in k8s.io/dynamic-resource-allocation needs informers.
func withTaints(published []*resourceapi.ResourceSlice, rules []resourceapi.DeviceTaintRule,
) []*resourceapi.ResourceSlice {
	tainted := slices.Clone(published)
	for i, original := range published {
		for j := range rules {
			selector := rules[j].Spec.DeviceSelector
			if selector == nil || !isOrAny(selector.Driver, original.Spec.Driver) ||
				!isOrAny(selector.Pool, original.Spec.Pool.Name) {
				continue
			}
			for k := range original.Spec.Devices {
				if !isOrAny(selector.Device, original.Spec.Devices[k].Name) {
					continue
				}
				if tainted[i] == original {
					tainted[i] = original.DeepCopy()
				}
				device := &tainted[i].Spec.Devices[k]
				device.Taints = append(device.Taints, rules[j].Spec.Taint)
			}
		}
	}
	return tainted
}

// isOrAny reports whether wanted is nil or equals name.
func isOrAny(wanted *string, name string) bool { return wanted == nil || *wanted == name }
