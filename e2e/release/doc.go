// Package release makes the files of a release and verifies them: archives, images, the chart, manifests, SBOMs,
// checksums, a signature and provenance.
//
// The rule of this package: the bytes of a release follow from the commit, the version, the registry, the version of Go
// and the key, and from nothing else. Nothing is built in the clone that one works in; verification needs no network.
package release
