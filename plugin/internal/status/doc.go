// Package status reports the state of claims and devices to users: in the status of claims, in events about pods, and
// in the health of devices, which the kubelet forwards.
//
// The rule of this package: it only reports. Its output is computed from the records of claims and the attachments, so
// that a crash loses nothing.
package status
