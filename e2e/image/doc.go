// Package image packs local files into container images that a container runtime can import without a registry.
//
// The one rule: the same input results in the same bytes. Times are zero, owners are root, entries are sorted, so an
// image's digest changes only when its content does. The package only depends on the standard library.
package image
