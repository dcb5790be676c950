// Package guest implements the init process for the machines that package vm boots: it prepares the machine, runs one
// command and switches the machine off. It also defines the messages exchanged between the host and the machine.
//
// Invariant: its only input is the [Order], and its only output is the [Outcome].
package guest

// Names that are used on both the host and the machine.
const (
	// RootTag is the tag of the shared directory with the root file system.
	RootTag = "root"
	// ControlTag is the tag of the shared directory with OrderFile and OutcomeFile.
	ControlTag = "control"
	// OrderFile contains the Order.
	OrderFile = "order.json"
	// OutcomeFile contains the Outcome.
	OutcomeFile = "outcome.json"
	// EarlyModules is the directory in the initial file system with the kernel modules that are required to mount the
	// root file system. They are loaded in order of their file names.
	EarlyModules = "/modules"
	// Terminal is the serial line that is connected to the command's input and output.
	Terminal = "/dev/ttyS1"
	// UplinkMAC is the MAC address of the uplink NIC.
	UplinkMAC = "52:54:00:bb:00:00"
	// Variable is an environment variable that is always set for commands in the machine.
	Variable = "DRA_NETWORK_VM"
)

// Order describes the machine's task.
type Order struct {
	// Args is the command. If it is empty, no command runs, and the order succeeds.
	Args []string `json:"args"`
	// Env contains additional environment variables, as NAME=value.
	Env []string `json:"env,omitempty"`
	// Dir is the command's working directory; empty means /.
	Dir string `json:"dir,omitempty"`
	// Modules are kernel modules to load before the command is run.
	Modules []string `json:"modules,omitempty"`
	// ModuleFiles are kernel module files to load after Modules.
	ModuleFiles []string `json:"moduleFiles,omitempty"`
	// VFs is the number of virtual functions to create on each physical function before the command is run.
	VFs int `json:"vfs,omitempty"`
	// Uplink is the name to assign to the link with the MAC address UplinkMAC; empty if there is none.
	Uplink string `json:"uplink,omitempty"`
	// Folders are directories on the host to mount before the command is run.
	Folders []Folder `json:"folders,omitempty"`
	// Window is the terminal size for an interactive command; nil for commands without input.
	Window *Window `json:"window,omitempty"`
}

// Folder is a directory on the host that is mounted in the machine.
type Folder struct {
	// Tag identifies the directory on the host.
	Tag string `json:"tag"`
	// Path is the mount point in the machine.
	Path     string `json:"path"`
	Writable bool   `json:"writable,omitempty"`
}

// Window is the size of a terminal in characters.
type Window struct {
	Rows, Columns uint16
}

// Outcome is the result of an order.
type Outcome struct {
	// ExitCode is the exit status of the command, or 128 plus the signal that terminated it.
	ExitCode int `json:"exitCode"`
	// Problem is the reason that the command did not run; empty if it did.
	Problem string `json:"problem,omitempty"`
	// ReadySeconds and EndSeconds are the machine's uptimes at the start and at the end of the command.
	ReadySeconds float64 `json:"readySeconds"`
	EndSeconds   float64 `json:"endSeconds"`
}
