package simulate

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Free returns, by node name, how many additional claims fit on each node if each claim requests one device of each
// class. Nodes without room are omitted, and counting stops at most. It adds the claims one by one because they may
// exclude each other in ways that a division cannot predict.
func (s *Simulator) Free(ctx context.Context, classNames []string, most int) (map[string]int, error) {
	free := map[string]int{}
	for _, node := range s.cluster.Nodes {
		beside := slices.Clone(s.cluster.Claims)
		for n := 1; n <= most; n++ {
			claim := claimOf(classNames, n)
			results, err := s.allocate(ctx, node, []*resourceapi.ResourceClaim{claim}, beside)
			if err != nil {
				return nil, err
			}
			if results == nil {
				break
			}
			free[node.Name] = n
			claim.Status.Allocation = &results[0]
			beside = append(beside, claim)
		}
	}
	return free, nil
}

// claimOf returns a claim that requests one device of each class.
func claimOf(classNames []string, number int) *resourceapi.ResourceClaim {
	name := fmt.Sprintf("claim-%d", number)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name,
		UID: types.UID(name)}}
	for i, class := range classNames {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: fmt.Sprintf("request-%d", i), Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class,
				AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}})
	}
	return claim
}
