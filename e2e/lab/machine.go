package lab

import "fmt"

// Machine is a process 1 with its namespaces: a single-node cluster, or the control plane or a node in a multi-node
// cluster. Its methods may be called concurrently. Its fields do not change once Up or Open has returned it. State that
// changes during a node's lifetime is in the node's file; see process.
type Machine struct {
	opts  Options
	state state
}

// String returns the machine's name for use in messages.
func (m *Machine) String() string {
	if m.state.Number == 0 {
		return fmt.Sprintf("cluster %q", m.state.Name)
	}
	return fmt.Sprintf("node %s of cluster %q", m.state.NodeName, m.state.Name)
}

// process returns the machine's process 1. Since other processes may switch nodes off and on, the current process 1 is
// recorded in the node's file, which is read on each call. If a node's state cannot be read, for example after Down,
// the node is considered off.
func (m *Machine) process() processID {
	if m.state.Number == 0 {
		return m.state.Init
	}
	now, err := loadState(m.state.RunDir)
	if err != nil {
		return processID{} // treat the node as off
	}
	return now.Init
}
