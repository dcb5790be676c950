// Package image packs local files into container images that a container runtime can import without a registry.
//
// Invariant: the same input always results in the same bytes. Times are zero, the owner is always root,
// and entries are sorted, so an image's digest changes only if its content changes. The package depends only on the
// standard library.
package image
