// Package deploy contains the manifests that install the driver, and samples. It has no code.
//
// The rule of this package: the properties of a manifest are tested. Every file decodes strictly into the type that the
// code reads, custom resources pass the checks of the API server and of the controller, and tests assert the settings
// that security depends on.
package deploy
