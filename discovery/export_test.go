package discovery

// OpenSysfs is how Host reads /sys.
var OpenSysfs = openSysfs

// OpenKernel is how Host asks netlink, and SettingsIn how it understands what is set for virtual functions.
var (
	OpenKernel = openKernel
	SettingsIn = settingsIn
	// ReadUevents is what KernelEvents does with uevents.
	ReadUevents = readUevents
)
