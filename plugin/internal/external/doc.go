// Package external tells those who attach devices in place of the driver, such as Multus, which devices a claim has.
//
// The rule of this package: its files are a function of the records of claims, and are compared with that function
// whenever a record comes or goes, at start and in every sweep. So it does not matter where the driver was killed, or
// who has removed a file.
package external
