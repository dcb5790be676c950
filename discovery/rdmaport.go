package discovery

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// RDMAPort contains the facts about a port of an RDMA device. The formats in sysfs are described in the kernel's
// Documentation/ABI/stable/sysfs-class-infiniband.
type RDMAPort struct {
	// GUID is the port GUID of an InfiniBand port, in the notation of subnet managers: 0x0002c90300a1b2c3.
	GUID string `json:"guid,omitempty"`
	// State is down, init, armed, active...
	State string `json:"state,omitempty"`
	// Rate is in Gbit/s, rounded down. It is 0 if the port is down, because drivers then report a default.
	Rate int `json:"rate,omitempty"`
	// PKeys contains the sorted partition keys of an InfiniBand port, for example 0x8001. The highest bit of a key is
	// set for full members of the partition.
	PKeys []string `json:"pKeys,omitempty"`
}

const (
	// pKeyBlock is the number of partition keys that a subnet manager sets with one message (struct ib_smp in the
	// kernel's include/rdma/ib_smi.h has 64 bytes of data).
	pKeyBlock = 32
	// maxPKeys is the maximum number of table entries to read.
	maxPKeys = 8 * pKeyBlock
)

// rdmaPort reads a port of an RDMA device in the network namespace of the sysfs. exists is false if there is no such
// port. An Ethernet port of a virtual function is not read: drivers query the firmware for each port, and the speed of
// the function's link is the rate.
func (s *sysfs) rdmaPort(device string, number int, ofVF bool) (port RDMAPort, exists bool) {
	const class = "class/" + rdmaDirectory
	target, ok := place{s, class, device}.link(device)
	if !ok {
		return RDMAPort{}, false
	}
	dir := place{s, path.Join(class, target, "ports", strconv.Itoa(number)), device}
	if _, err := fs.Stat(s.fsys, dir.dir); err != nil && isAbsent(err) {
		return RDMAPort{}, false
	}
	layer := dir.text("link_layer")
	if layer == "" || layer == "Ethernet" && ofVF {
		return RDMAPort{}, true
	}
	port.State = dir.portState()
	if slices.Contains([]string{"init", "armed", "active", "active_defer"}, port.State) {
		port.Rate = dir.rate()
	}
	if layer == "InfiniBand" { // elsewhere, GIDs derive from addresses, and the default key is the only one
		port.GUID, port.PKeys = dir.portGUID(), dir.partitionKeys()
	}
	return port, true
}

// portState returns the name in the file "state", which contains for example "4: ACTIVE".
func (p place) portState() string {
	text := p.text("state")
	_, name, found := strings.Cut(text, ": ")
	if text != "" && (!found || !isWord(name)) {
		p.problem("cannot use state: it contains %s, which is not a port state", excerpt(text))
		return ""
	}
	return strings.ToLower(name)
}

// rate returns the number in the file "rate", which contains for example "100 Gb/sec (4X EDR)" or "2.5 Gb/sec (1X)".
func (p place) rate() int {
	text := p.text("rate")
	number, _, found := strings.Cut(text, " Gb/sec")
	if text != "" && !found {
		p.problem("cannot use rate: it contains %s, which is not a rate in Gb/sec", excerpt(text))
		return 0
	}
	whole, _, _ := strings.Cut(number, ".")
	rate, err := rates().parse(whole)
	if err != nil {
		p.problem("cannot use rate: %v", err)
	}
	return rate
}

// portGUID returns the lower half of the first GID, or "" if the port has no GUID yet.
func (p place) portGUID() string {
	text := p.text("gids/0")
	groups := strings.Split(text, ":")
	digits := strings.Join(groups[len(groups)/2:], "")
	if text != "" && (len(groups) != 8 || len(text) != 39 || len(digits) != 16 || !isHex(strings.Join(groups, ""))) {
		p.problem("cannot use gids/0: it contains %s, which is not a GID", excerpt(text))
		return ""
	}
	if strings.Trim(digits, "0") == "" {
		return ""
	}
	return "0x" + digits
}

// partitionKeys returns the distinct keys in the port's table; unused entries are 0. It returns nil if an entry cannot
// be read. Drivers query the firmware for each entry, so it reads a further block only if the last entry of the previous
// block is used: subnet managers fill the table from its beginning.
func (p place) partitionKeys() []string {
	var keys []string
	last := -1 // the index of the last used entry
	for index := 0; index < maxPKeys && (index%pKeyBlock != 0 || last == index-1); index++ {
		name := fmt.Sprintf("pkeys/%d", index)
		content, err := fs.ReadFile(p.fsys, p.path(name))
		if err != nil && isAbsent(err) {
			break
		}
		if err != nil {
			p.failed(name, err)
			return nil
		}
		text := strings.TrimSpace(string(content))
		if digits, ok := strings.CutPrefix(text, "0x"); !ok || len(digits) != 4 || !isHex(digits) {
			p.problem("cannot use %s: it contains %s, which is not a partition key", name, excerpt(text))
			return nil
		}
		if text != "0x0000" {
			keys, last = append(keys, text), index
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
