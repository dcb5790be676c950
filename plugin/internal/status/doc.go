// Package status reports the state of claims and devices to users: through claim status, pod events, and device health,
// which the kubelet forwards.
//
// Invariant: it only reports. Its output is computed from the claim records and the attachments, so
// nothing is lost in a crash.
package status
