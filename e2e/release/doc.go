// Package release creates and verifies the files in a release: archives, images, the chart, manifests, SBOMs,
// checksums, a signature and the provenance.
//
// Invariant: a release is reproducible byte for byte from the commit, the version, the registry, the Go
// version and the key. Nothing is built in the working clone, and verification does not need network access.
package release
