// Package policy decides which devices of a node are offered, and how: Facts and DeviceExposurePolicies become a
// Decision. It owns the attribute vocabulary, the names and values by which devices are selected and published, and the
// expression language of selectors.
//
// The rule of this package: it is pure. The same facts and policies give the same decision; what is wrong with a policy
// or a device is data in the decision, with the reasons for every device, and never stops the others.
package policy
