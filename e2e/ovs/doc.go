// Package ovs tests the project with Open vSwitch: discovery of bridges, ports and bonds, chains with the real ovs-cni
// plugin, and what happens to pods when Open vSwitch is restarted or a bridge is deleted. The package contains only
// tests.
//
// Invariant: its tests run one after the other inside an Open vSwitch machine booted by package vm (make
// ovs-test) that has no other users. Each test starts its own database and daemons. The tests check the kernel, traffic
// and the database, never the driver's own reports.
package ovs
