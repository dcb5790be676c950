// Package discoverytest makes machines for tests: what sysfs and netlink say of network cards that nobody here has.
//
// A machine is a value, a [Host]. Its sources give discovery.Read the facts; its recording, written to a directory, is
// what "netdra facts --record" would have written on such a machine:
//
//	facts, err := discovery.Read(ctx, discoverytest.ReferenceNode().Sources())
//	err = discoverytest.Examples()["example7"].Write(t.TempDir())
//
// The rule of this package: no I/O, and the same call makes the same machine.
package discoverytest
