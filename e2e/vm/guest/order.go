// Package guest is the first process of a machine of package vm: it prepares the machine, runs one command and switches
// the machine off. It also defines the messages between the two sides.
//
// The rule of this package: its only input is the [Order], its only output the [Outcome].
package guest

// How things are called outside and inside.
const (
	// RootTag is the name of the shared folder with the root file system.
	RootTag = "root"
	// ControlTag is the name of the shared folder with OrderFile and OutcomeFile.
	ControlTag = "control"
	// OrderFile has the Order.
	OrderFile = "order.json"
	// OutcomeFile has the Outcome.
	OutcomeFile = "outcome.json"
	// EarlyModules is the folder of the initial file system with the kernel modules that are needed to mount the root.
	// They are loaded in the order of their names.
	EarlyModules = "/modules"
	// Terminal is the serial line that the command's input and output are connected to.
	Terminal = "/dev/ttyS1"
	// UplinkMAC is the address of the NIC that leads out of the machine.
	UplinkMAC = "52:54:00:bb:00:00"
	// Variable is the environment variable that commands find set inside.
	Variable = "DRA_NETWORK_VM"
)

// Order is the work for the machine.
type Order struct {
	// Args is the command; empty for none, which is a success.
	Args []string `json:"args"`
	// Env are further environment variables, as NAME=value.
	Env []string `json:"env,omitempty"`
	// Dir is the command's working directory; empty means /.
	Dir string `json:"dir,omitempty"`
	// Modules are kernel modules to load before.
	Modules []string `json:"modules,omitempty"`
	// ModuleFiles are files of kernel modules to load after those.
	ModuleFiles []string `json:"moduleFiles,omitempty"`
	// VFs is how many virtual functions each physical function gets before.
	VFs int `json:"vfs,omitempty"`
	// Uplink is the name for the link with UplinkMAC; empty where there is none.
	Uplink string `json:"uplink,omitempty"`
	// Folders are mounted before.
	Folders []Folder `json:"folders,omitempty"`
	// Window is the size of the terminal of an interactive command; nil for commands that get no input.
	Window *Window `json:"window,omitempty"`
}

// Folder is a folder of the host.
type Folder struct {
	// Tag is its name on the host's side.
	Tag string `json:"tag"`
	// Path is where it is mounted inside.
	Path     string `json:"path"`
	Writable bool   `json:"writable,omitempty"`
}

// Window is the size of a terminal in characters.
type Window struct {
	Rows, Columns uint16
}

// Outcome is the result of an order.
type Outcome struct {
	// ExitCode is the command's; 128 and the signal if one ended it.
	ExitCode int `json:"exitCode"`
	// Problem is the reason why the command was not run; empty if it was.
	Problem string `json:"problem,omitempty"`
	// ReadySeconds and EndSeconds are the uptimes of the machine when the command began and ended.
	ReadySeconds float64 `json:"readySeconds"`
	EndSeconds   float64 `json:"endSeconds"`
}
