package lab

import "fmt"

// Machine is one process 1 with its namespaces: all of a cluster with one node, the control plane of a cluster with
// several, or one of these nodes. Its methods may be used by several goroutines at once. Its fields are not written any
// more once Up or Open has returned it. What changes in the life of a node is in the node's file: see process.
type Machine struct {
	opts  Options
	state state
}

// String names the machine in messages.
func (m *Machine) String() string {
	if m.state.Number == 0 {
		return fmt.Sprintf("cluster %q", m.state.Name)
	}
	return fmt.Sprintf("node %s of cluster %q", m.state.NodeName, m.state.Name)
}

// process is process 1 of the machine. Others switch nodes off and on, so which it is now stands in the node's file. It
// reads the file each time; a node whose state can't be read is one that is off, as after Down.
func (m *Machine) process() processID {
	if m.state.Number == 0 {
		return m.state.Init
	}
	now, err := loadState(m.state.RunDir)
	if err != nil {
		return processID{} // as if it were off
	}
	return now.Init
}
