// Package external passes the devices of a claim to the components that attach them instead of the driver, such as
// Multus.
//
// The rule of this package: its files are a function of the records of claims, and are compared with that function
// after every change of a record, at start and in every sweep. Therefore killing the driver or removing files has no
// lasting effect.
package external
