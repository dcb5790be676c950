package discovery

// OpenSysfs exports the function with which Host opens /sys.
var OpenSysfs = openSysfs

// OpenKernel exports the function with which Host opens netlink. SettingsIn exports the parser for the settings of
// virtual functions.
var (
	OpenKernel = openKernel
	SettingsIn = settingsIn
	// RDMALinkLayer exports the conversion of an RDMA device's protocol.
	RDMALinkLayer = rdmaLinkLayer
	// OpenUevents and ReadUevents export the functions with which KernelEvents reads uevents.
	OpenUevents = openUevents
	ReadUevents = readUevents
)
