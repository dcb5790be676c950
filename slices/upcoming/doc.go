// Package upcoming writes ResourceSlices in forms that no API server has yet: with bandwidth that a claim chooses
// freely (KEP-5941, DRA Shared Consumable Capacity) and with mixins (KEP-5234, DRA ResourceSlice Mixins). People can
// look at them and compare their sizes; when an API server has them, the types of this package are replaced by those of
// the API.
//
// The rule of this package: pure functions, on types that are those of the KEPs where these differ from
// resource.k8s.io/v1.
package upcoming
