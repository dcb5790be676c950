// Package deploy holds the manifests with which the driver is installed, and samples to learn from. It has no code.
//
// The rule of this package: what a manifest promises is tested. Every file decodes strictly into the type that the code
// reads, custom resources pass the same checks as at the API server and in the controller, and what security rests on
// is asserted.
package deploy
