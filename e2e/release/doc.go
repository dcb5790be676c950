// Package release creates the files of a release and verifies them: archives, images, the chart, manifests, SBOMs,
// checksums, a signature and provenance.
//
// The rule of this package: the bytes of a release depend only on the commit, the version, the registry, the Go version
// and the key. Nothing is built in the working clone, and verification does not need network access.
package release
