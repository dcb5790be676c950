// Package deploy contains samples and the manifests that install the driver. It contains no code.
//
// Invariant: the properties of a manifest are tested. Every file decodes strictly into the type used by
// the code, custom resources pass the checks in the API server and the controller, and tests assert the settings that
// security depends on.
package deploy
