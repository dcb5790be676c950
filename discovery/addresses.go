package discovery

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
)

// WithoutAddresses returns the recording with all link addresses replaced. The new addresses are locally administered
// and numbered in link order. Equal addresses stay equal, and unlike a 48-bit hash, a number does not allow the real
// address to be inferred. Names that contain an address (enx0242ac110002) are changed to match wherever they occur. A
// zero address stays zero.
func (r Recording) WithoutAddresses() Recording {
	fakes := r.fakeAddresses()
	inNames := make([]string, 0, 2*len(fakes))
	for _, real := range slices.Sorted(maps.Keys(fakes)) {
		if strings.Count(real, ":") >= 5 { // shorter addresses could match by chance
			inNames = append(inNames, strings.ReplaceAll(real, ":", ""), strings.ReplaceAll(fakes[real], ":", ""))
		}
	}
	names := strings.NewReplacer(inNames...)
	changed := Recording{Sys: r.Sys.renamed(names), Netlink: r.Netlink}
	changed.Sys.hideSwitches()
	changed.Sys.hideGUIDs(fakes)
	changed.Netlink.Links = slices.Clone(r.Netlink.Links)
	for i := range changed.Netlink.Links {
		l := &changed.Netlink.Links[i]
		if fake, ok := fakes[l.MAC]; ok {
			l.MAC = fake
		}
		l.permanentMAC = ""
		l.Name = names.Replace(l.Name)
		l.AltNames = slices.Clone(l.AltNames)
		for j := range l.AltNames {
			l.AltNames[j] = names.Replace(l.AltNames[j])
		}
		slices.Sort(l.AltNames)
		l.VFs = slices.Clone(l.VFs)
		for j := range l.VFs {
			if fake, ok := fakes[l.VFs[j].MAC]; ok {
				l.VFs[j].MAC = fake
			}
		}
	}
	changed.Netlink.RDMADevices = slices.Clone(r.Netlink.RDMADevices)
	for i := range changed.Netlink.RDMADevices {
		d := &changed.Netlink.RDMADevices[i]
		d.Name = names.Replace(d.Name)
	}
	return changed
}

// fakeAddresses returns the replacement for each address.
func (r Recording) fakeAddresses() map[string]string {
	var found []string
	for _, l := range r.Netlink.Links {
		found = append(found, l.MAC, l.permanentMAC)
		for _, vf := range l.VFs {
			found = append(found, vf.MAC)
		}
	}
	for _, dir := range r.Sys.Dirs {
		found = append(found, guidIn(dir))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Sys.Files)) {
		_, guid := guidOfPort(name, r.Sys.Files[name])
		found = append(found, guid)
	}
	fakes, number := map[string]string{}, uint32(0)
	for _, text := range found {
		address, err := hardwareAddress(text)
		if _, known := fakes[text]; err != nil || known || isSpecial(address) {
			continue
		}
		for {
			number++
			if fake := fakeAddress(number, len(address)); !slices.Contains(found, fake) {
				fakes[text] = fake
				break
			}
		}
	}
	return fakes
}

// fakeAddress returns a locally administered address with the given number and length in bytes.
func fakeAddress(number uint32, length int) string {
	fake := make(net.HardwareAddr, max(length, 4))
	binary.BigEndian.PutUint32(fake[len(fake)-4:], number)
	fake = fake[len(fake)-length:]
	fake[0] |= 2 // the bit for locally administered addresses in IEEE 802
	return fake.String()
}

// isSpecial reports whether an address consists only of 0 bytes or only of 255 bytes. No device has such an address.
func isSpecial(address net.HardwareAddr) bool {
	first := address[0]
	return (first == 0 || first == 0xff) && !slices.ContainsFunc(address, func(b byte) bool { return b != first })
}

// hardwareAddress parses an address in the format used by netlink. Unlike net.ParseMAC, it supports any length.
func hardwareAddress(text string) (net.HardwareAddr, error) {
	address, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(address) == 0 || net.HardwareAddr(address).String() != text {
		return nil, fmt.Errorf("%s is not a link address", excerpt(text))
	}
	return address, nil
}

// guidIn returns the address in an RDMA device's name if udev's rdma_rename named the device after its GUID, for
// example rocex0242acfffe110002.
func guidIn(dir string) string {
	_, digits, found := strings.Cut(path.Base(dir), "x")
	guid, err := hex.DecodeString(digits)
	if path.Base(path.Dir(dir)) != rdmaDirectory || !found || err != nil || len(guid) != 8 {
		return ""
	}
	return net.HardwareAddr(guid).String()
}

// guidOfPort splits a GID, the content of the named file, into the subnet prefix and the GUID, in the format used by
// netlink. Both are empty if the file contains no GID.
func guidOfPort(name, content string) (prefix, guid string) {
	digits, err := hex.DecodeString(strings.ReplaceAll(content, ":", ""))
	if path.Base(path.Dir(name)) != "gids" || err != nil || len(digits) != 16 || len(content) != 39 {
		return "", ""
	}
	return content[:len(content)/2], net.HardwareAddr(digits[8:]).String()
}

// hideGUIDs replaces the GUIDs in the GIDs of RDMA ports.
func (t Tree) hideGUIDs(fakes map[string]string) {
	for name, content := range t.Files {
		prefix, guid := guidOfPort(name, content)
		if fake, ok := fakes[guid]; ok {
			b, _ := hex.DecodeString(strings.ReplaceAll(fake, ":", ""))
			t.Files[name] = fmt.Sprintf("%s:%x:%x:%x:%x", prefix, b[:2], b[2:4], b[4:6], b[6:])
		}
	}
}

// renamed returns a copy of the tree in which names are replaced in paths and link targets.
func (t Tree) renamed(names *strings.Replacer) Tree {
	changed := Tree{Links: map[string]string{}, Files: map[string]string{}, Errors: map[string]string{}}
	for name, target := range t.Links {
		changed.Links[names.Replace(name)] = names.Replace(target)
	}
	for name, content := range t.Files {
		changed.Files[names.Replace(name)] = content
	}
	for name, errno := range t.Errors {
		changed.Errors[names.Replace(name)] = errno
	}
	for _, name := range t.Dirs {
		changed.Dirs = append(changed.Dirs, names.Replace(name))
	}
	slices.Sort(changed.Dirs)
	return changed
}

// hideSwitches replaces hardware switch IDs with numbers, since drivers derive these IDs from addresses and serial
// numbers.
func (t Tree) hideSwitches() {
	numbers := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(t.Files)) {
		id := t.Files[name]
		if path.Base(name) != "phys_switch_id" || id == "" {
			continue
		}
		if numbers[id] == "" {
			numbers[id] = fmt.Sprintf("%0*x", len(id), len(numbers)+1)
		}
		t.Files[name] = numbers[id]
	}
}
