package v1alpha1_test

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// Validate reports all problems in a policy.
func ExampleValidate() {
	var p v1alpha1.DeviceExposurePolicy
	err := yaml.UnmarshalStrict([]byte(`
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}
  exposure:
    deviceNameSuffix: macvlan
    allowMultipleAllocations: true
    supportedCNIPlugins: [{name: macvlan, consumePerAllocation: {macvlans: 1}}]
`), &p)
	if err != nil {
		fmt.Println(err)
	}
	for _, err := range v1alpha1.Validate(&p) {
		fmt.Println(err.Field)
		fmt.Println("  ", err.Detail)
	}
	// Output:
	// spec.exposure.deviceNameSuffix
	//    must be empty or "-" followed by lower-case letters, digits and "-", at most 32 characters, for example "-macvlan"
	// spec.exposure.supportedCNIPlugins[0].consumePerAllocation[macvlans]
	//    capacity has no counter "macvlans": add it to capacity or remove it here
}
