// Package status tells users what became of their claims and devices: in the status of claims, in events of pods, and
// in the health of devices that kubelet passes on.
//
// The rule of this package: it changes nothing but what is said. What it writes is computed from the records of claims
// and from what is attached, so that nothing is lost with a crash.
package status
