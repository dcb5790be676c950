package discovery

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// span is the range of valid numbers in a sysfs file. absent is the value used for an empty file.
type span struct{ absent, low, high int }

// nodes returns the range of NUMA node numbers (Documentation/ABI/testing/sysfs-bus-pci, numa_node): -1 means no
// affinity, and the largest NODES_SHIFT in the kernel is 10.
func nodes() span { return span{absent: None, low: None, high: 1<<10 - 1} }

// speeds returns the range of link speeds in Mbit/s (Documentation/ABI/testing/sysfs-class-net, speed). SPEED_UNKNOWN
// is -1; drivers that store it as an unsigned number report it as 2^32-1 (see knownSpeed). ethtool_validate_speed
// accepts values up to INT_MAX.
func speeds() span { return span{absent: 0, low: -1, high: 1<<32 - 1} }

// rates returns the range of the rates of RDMA ports in Gbit/s. The upper limit is far above all InfiniBand rates.
func rates() span { return span{absent: 0, low: 0, high: 1<<16 - 1} }

// functionCounts returns the range for the number of virtual functions: TotalVFs and NumVFs in the SR-IOV capability
// are 16 bits wide.
func functionCounts() span { return span{absent: 0, low: 0, high: 1<<16 - 1} }

// ports returns the range of port numbers within a function (dev_port), a 16-bit field in the kernel's net_device.
func ports() span { return span{absent: 0, low: 0, high: 1<<16 - 1} }

// scalableFunctions returns the range of scalable function numbers, which are 32 bits wide in devlink
// (DEVLINK_ATTR_PORT_PCI_SF_NUMBER).
func scalableFunctions() span { return span{absent: None, low: 0, high: 1<<32 - 1} }

// parse returns the number in a file's text. It returns absent and an error if the text is not a number within the
// span.
func (s span) parse(text string) (int, error) {
	if text == "" {
		return s.absent, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < s.low || n > s.high {
		return s.absent, fmt.Errorf("it contains %s, which is not a number from %d to %d", excerpt(text), s.low, s.high)
	}
	return n, nil
}

// knownSpeed returns the speed unchanged, or 0 if it is one of the values that drivers report for an unknown speed.
func knownSpeed(mbits int) int {
	if mbits < 0 || mbits > 1<<31-1 {
		return 0
	}
	return mbits
}

// parseID returns the four hexadecimal digits of a PCI ID, which has the form 0x15b3 in sysfs.
func parseID(text string) (string, error) {
	digits, ok := strings.CutPrefix(text, "0x")
	if text == "" {
		return "", nil
	}
	if !ok || len(digits) != 4 || !isHex(digits) {
		return "", fmt.Errorf("it contains %s, which is not a PCI ID", excerpt(text))
	}
	return digits, nil
}

// isWord reports whether text is a name that can be shown to users and used in policies: it must be printable ASCII
// (some drivers use spaces), and no longer than the longest names in the kernel, which are 32-byte IDs
// (MAX_PHYS_ITEM_ID_LEN) written as hexadecimal digits.
func isWord(text string) bool {
	return len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// excerpt quotes the beginning of text that comes from a driver or a file.
func excerpt(text string) string {
	const limit = 40
	if len(text) > limit {
		return strconv.QuoteToASCII(text[:limit]) + "..."
	}
	return strconv.QuoteToASCII(text)
}

// ParsePCIAddress parses an address of the form domain:bus:device.function in hexadecimal digits, as written by users
// and in configurations. A domain has four digits, or more for devices behind an Intel Volume Management Device.
func ParsePCIAddress(text string) (PCIAddress, error) {
	address := strings.ToLower(text)
	if !isPCIAddress(address) {
		return "", fmt.Errorf("%s is not a PCI address, for example 0000:03:00.2", excerpt(text))
	}
	return PCIAddress(address), nil
}

// isPCIAddress reports whether a string is a PCI address in the format used by sysfs.
func isPCIAddress(s string) bool {
	domain, rest, _ := strings.Cut(s, ":")
	return len(domain) >= 4 && len(domain) <= 8 && isHex(domain) &&
		len(rest) == len("00:00.0") && isHex(rest[:2]) && rest[2] == ':' && isHex(rest[3:5]) && rest[5] == '.' &&
		rest[6] >= '0' && rest[6] <= '7'
}

// isHex reports whether a string contains only lowercase hexadecimal digits.
func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

// isScalableFunction reports whether a device name on the auxiliary bus (MODULE.ID.NUMBER) belongs to a scalable
// function. Drivers for scalable functions use the ID "sf": MLX5_SF_DEV_ID_NAME in the kernel's mlx5 driver, and
// ice_sf_dev_activate in the ice driver.
func isScalableFunction(name string) bool {
	_, rest, _ := strings.Cut(name, ".")
	number, ok := strings.CutPrefix(rest, "sf.")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// pcieRoot returns the PCI root above a device directory, or "" if there is none. If the firmware uses a device tree,
// the root is not the topmost directory: devices/platform/3f000000.pcie/pci0000:00/...
func pcieRoot(dir string) string {
	if !strings.HasPrefix(dir, "devices/") {
		return ""
	}
	for element := range strings.SplitSeq(dir, "/") {
		number, ok := strings.CutPrefix(element, "pci")
		domain, bus, found := strings.Cut(number, ":")
		if ok && found && len(domain) >= 4 && isHex(domain) && len(bus) == 2 && isHex(bus) {
			return element
		}
	}
	return ""
}

// isRepresentor reports whether a phys_port_name belongs to a representor: the port in a physical function's switch
// that a physical function, virtual function or subfunction is connected to. __devlink_port_phys_port_name_get in the
// kernel's net/devlink/port.c creates the names: pf0, pf0vf1 and pf0sf1, with the prefix c1 for functions on another
// host. On smart NICs, the mlx5 driver also used pf0hpf for the host's function. External ports are named p0 or p0s1.
func isRepresentor(physPortName string) bool {
	rest := physPortName
	if controller, ok := cutNumber(rest, "c"); ok {
		rest = controller
	}
	rest, ok := cutNumber(rest, "pf")
	if !ok {
		return false
	}
	if rest == "" || rest == "hpf" {
		return true
	}
	for _, kind := range []string{"vf", "sf"} {
		if left, ok := cutNumber(rest, kind); ok && left == "" {
			return true
		}
	}
	return false
}

// cutNumber removes a prefix and the decimal digits after it. There must be at least one digit.
func cutNumber(s, prefix string) (rest string, ok bool) {
	number, ok := strings.CutPrefix(s, prefix)
	rest = strings.TrimLeft(number, "0123456789")
	return rest, ok && len(rest) < len(number)
}

// isLinkName reports whether a name is valid for a link, as in dev_valid_name in the kernel's net/core/dev.c, except
// that it does not check for white space. A path built from any other name could point outside the link's directory in
// sysfs.
func isLinkName(name string) bool {
	return name != "." && fs.ValidPath(name) && !strings.Contains(name, "/")
}
