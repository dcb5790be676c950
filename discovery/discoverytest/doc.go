// Package discoverytest creates machines for tests: the sysfs and netlink data of NICs that no test machine has.
//
// A machine is a value, a [Host]. Its sources provide the facts for discovery.Read. Its recording, written to a
// directory, matches the output of "netdra facts --record" on such a machine:
//
//	facts, err := discovery.Read(ctx, discoverytest.ReferenceNode().Sources())
//	err = discoverytest.Examples()["example7"].Write(t.TempDir())
//
// The rule of this package: no I/O, and the same call always creates the same machine.
package discoverytest
