// Package ovs tests the project with Open vSwitch: the discovery of its bridges, ports and bonds, chains with the real
// ovs-cni plugin, and the effect on pods when Open vSwitch is restarted or loses a bridge. The package contains only
// tests.
//
// The rule of this package: its tests run one after the other inside a machine of package vm with Open vSwitch (make
// ovs-test) that has no other users. Each test starts its own database and daemons. The tests check the kernel, traffic
// and the database, never the driver's own reports.
package ovs
