package cnichain

import (
	"errors"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Unlimited is RLIM_INFINITY (see setrlimit(2)).
const Unlimited uint64 = math.MaxUint64

// lockedMemoryUnlimited is the value that represents [Unlimited] in a step's limits.
const lockedMemoryUnlimited = "unlimited"

// LockedMemory returns the RLIMIT_MEMLOCK that limits configures, in bytes, or 0 if none is configured.
func LockedMemory(limits *v1alpha1.StepLimits) (bytes uint64, err error) {
	switch {
	case limits == nil || limits.LockedMemory == "":
		return 0, nil
	case limits.LockedMemory == lockedMemoryUnlimited:
		return Unlimited, nil
	}
	quantity, err := resource.ParseQuantity(limits.LockedMemory)
	if err != nil || quantity.Value() <= 0 || quantity.Value() == math.MaxInt64 {
		return 0, errors.New("must be a quantity of bytes above 0, such as 8Gi, or unlimited")
	}
	return uint64(quantity.Value()), nil
}
