package discovery

// OpenSysfs exports the function with which Host opens /sys.
var OpenSysfs = openSysfs

// OpenKernel exports the function with which Host opens netlink, and SettingsIn exports the parser of virtual
// functions' settings.
var (
	OpenKernel = openKernel
	SettingsIn = settingsIn
	// RDMALinkLayer exports the conversion of the protocol of an RDMA device.
	RDMALinkLayer = rdmaLinkLayer
	// OpenUevents and ReadUevents export the functions with which KernelEvents reads uevents.
	OpenUevents = openUevents
	ReadUevents = readUevents
)
