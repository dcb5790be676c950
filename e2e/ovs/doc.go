// Package ovs tests the project on Open vSwitch: discovery of its bridges, ports and bonds, chains of the real ovs-cni
// plugin, and the effect on pods when Open vSwitch is restarted or loses a bridge. The package contains only tests.
//
// The rule of this package: its tests run inside a machine of package vm with Open vSwitch (make ovs-test), without
// other users, one after another, each with a database and daemons that it starts. They check the kernel, traffic and
// the database, never the driver's reports about itself.
package ovs
