// Package discoverytest simulates machines for tests: it creates the sysfs and netlink data for NICs that no test
// machine has.
//
// A machine is a [Host] value. discovery.Read can read its sources, and its recording, once written to a directory,
// matches the output of "netdra facts --record" on a real machine of that kind:
//
//	facts, err := discovery.Read(ctx, discoverytest.ReferenceNode().Sources())
//	err = discoverytest.Examples()["example7"].Write(t.TempDir())
//
// Invariant: no I/O, and the same call always creates the same machine.
package discoverytest
