// Package ovs tests the project on Open vSwitch: discovery of its bridges, ports and bonds, chains of the real ovs-cni
// plugin, and what becomes of pods when Open vSwitch is restarted or loses a bridge. It has no other code.
//
// The rule of this package: its tests run inside a machine of package vm with Open vSwitch (make ovs-test), which is
// theirs alone, one after the other, each with a database and daemons that it starts itself. They look at the kernel,
// at traffic and at the database, never at what the driver says of itself.
package ovs
