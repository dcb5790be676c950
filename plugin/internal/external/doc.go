// Package external passes the devices of a claim to other components that attach them, such as Multus.
//
// Invariant: its files are a function of the claim records. They are reconciled with the records after
// every change to a record, at startup and in every sweep. Therefore, killing the driver or removing files has no
// lasting effect.
package external
