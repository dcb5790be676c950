// Package ovs tests the project on Open vSwitch: discovery of its bridges, ports and bonds, chains of the real ovs-cni
// plugin, and the effect on pods when Open vSwitch is restarted or loses a bridge. It has no other code.
//
// The rule of this package: its tests run inside a machine of package vm with Open vSwitch (make ovs-test), without
// other users, one after the other, each with a database and daemons that it starts itself. They check the kernel,
// traffic and the database, never the driver's reports about itself.
package ovs
