// Package external reports the devices of a claim to components that attach them instead of the driver, such as Multus.
//
// The rule of this package: its files are a function of the records of claims, and are compared with that function
// after every change of a record, at start and in every sweep. Kills of the driver and removed files therefore have no
// lasting effect.
package external
