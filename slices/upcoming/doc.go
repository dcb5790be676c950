// Package upcoming generates ResourceSlices in forms that no API server supports yet: with bandwidth amounts chosen by
// claims (KEP-5941, DRA Shared Consumable Capacity) and with mixins (KEP-5234, DRA ResourceSlice Mixins). Users can
// inspect these slices and compare their sizes. Once an API server supports these forms, the types in the API will
// replace the types in this package.
//
// Invariant: it consists of pure functions on types that follow the KEPs where the KEPs differ from
// resource.k8s.io/v1.
package upcoming
