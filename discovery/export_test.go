package discovery

// OpenSysfs is how Host reads /sys.
var OpenSysfs = openSysfs
