// Package status reports the state of claims and devices to users: in claim status, in pod events, and in device
// health, which the kubelet forwards.
//
// The rule of this package: it only reports. Its output is computed from the claim records and the attachments, so that
// a crash loses nothing.
package status
