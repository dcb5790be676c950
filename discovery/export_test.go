package discovery

// OpenSysfs exports the function that Host uses to open /sys.
var OpenSysfs = openSysfs

// OpenKernel exports the function that Host uses to open netlink. SettingsIn exports the parser for the settings of
// virtual functions.
var (
	OpenKernel = openKernel
	SettingsIn = settingsIn
	// RDMALinkLayer exports the conversion of an RDMA device's protocol.
	RDMALinkLayer = rdmaLinkLayer
	// OpenUevents and ReadUevents export the functions that KernelEvents uses to read uevents.
	OpenUevents = openUevents
	ReadUevents = readUevents
)
