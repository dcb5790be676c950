package discovery

// OpenSysfs is how Host reads /sys.
var OpenSysfs = openSysfs

// OpenKernel is how Host asks netlink, and SettingsIn how it understands what is set for virtual functions.
var (
	OpenKernel = openKernel
	SettingsIn = settingsIn
	// RDMALinkLayer is how it understands the protocol of an RDMA device.
	RDMALinkLayer = rdmaLinkLayer
	// OpenUevents and ReadUevents are what KernelEvents does with uevents.
	OpenUevents = openUevents
	ReadUevents = readUevents
)
