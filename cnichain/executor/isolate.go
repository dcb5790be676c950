package executor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/discovery/linkkind"
)

// isolate moves a step's exclusive device from the pod into a network namespace owned by the driver. DEL and the rest
// of the step's rollback use that namespace. The move is necessary because containers may still be running after a
// forced deletion: a container with NET_ADMIN could rename the device, replace it, or stack links on it while the
// plugin returns the device to the host.
//
// Links that the application stacked on the device are deleted before and after the move, since an application can
// still create links in between. Stacked links in namespaces that the driver cannot enter are detected when the device
// is restored. A device that is not in the pod is not moved.
func (e *Executor) isolate(attachment *Attachment, record *StepRecord) error {
	if !record.Step.OwnsDevice() || !record.Step.Makes || record.Step.BindsDriver() || record.Step.Stays ||
		record.Foreign {
		return nil
	}
	target := host.ReturnPath(attachment.Pin)
	const attempts = 5 // during the move, an application may replace the device with its own link
	for range attempts {
		link, path, err := e.findDevice(attachment, record)
		if err != nil || link == nil {
			return err
		}
		if path != target {
			_ = e.Host.RemoveStacked(path, path, link.Index) // links that remain are removed or detected below
		} else if link.Name == record.IfName {
			return e.adoptIsolated(attachment, record, link)
		}
		moved, err := e.Host.Isolate(path, link.Index, target, record.IfName)
		if err != nil {
			return err
		}
		if isOwnDevice(&moved, record.Step.Device, nil) || moved.Same(link) && !hasIdentity(record.Step.Device) {
			return e.adoptIsolated(attachment, record, &moved)
		}
		if err := e.Host.Remove(target, moved.Index); err != nil {
			return err
		}
	}
	return fmt.Errorf("cannot move device %s out of the reach of its pod: an application replaces it with other "+
		"links; end its containers", record.Step.Device.Name)
}

// adoptIsolated records the device's link in the driver's namespace, and removes links in the pod that are stacked on
// that link.
func (e *Executor) adoptIsolated(attachment *Attachment, record *StepRecord, link *cnichain.Link) error {
	if record.Link == nil || !link.Same(record.Link) {
		seen := *link
		if record.Link != nil {
			seen.Alias = record.Link.Alias
		}
		record.Link = &seen
	}
	if !e.Host.Exists(attachment.Pin) {
		return nil
	}
	return e.Host.RemoveStacked(attachment.Pin, host.ReturnPath(attachment.Pin), link.Index)
}

// unpinReturned removes the driver's namespace for an attachment, unless the namespace still contains a device. A later
// attempt returns that device to the host. Deleting the namespace would delete a virtual device in it.
func (e *Executor) unpinReturned(attachment *Attachment) error {
	path := host.ReturnPath(attachment.Pin)
	if !e.Host.Exists(path) {
		return nil
	}
	const loopback = 1 // index of the loopback device in every network namespace
	links, err := e.Host.Links(path)
	if err != nil || slices.ContainsFunc(links, func(link cnichain.Link) bool { return link.Index != loopback }) {
		return err
	}
	return e.Host.Unpin(path)
}

// namespaceOf returns the path to the namespace in which to look up a step's interface: the driver's namespace if the
// device was moved there, otherwise the pod's.
func (e *Executor) namespaceOf(attachment *Attachment, record *StepRecord) string {
	path := host.ReturnPath(attachment.Pin)
	if !record.Step.OwnsDevice() || !record.Step.Makes || !e.Host.Exists(path) {
		return attachment.Pin
	}
	links, err := e.Host.Links(path)
	if err != nil || e.chooseDevice(links, record) == nil {
		return attachment.Pin
	}
	return path
}

// findDevice finds a step's exclusive device in the driver's namespace or in the pod. It returns a nil link if the
// device is in neither.
func (e *Executor) findDevice(attachment *Attachment, record *StepRecord) (*cnichain.Link, string, error) {
	for _, path := range []string{host.ReturnPath(attachment.Pin), attachment.Pin} {
		if !e.Host.Exists(path) {
			continue
		}
		links, err := e.Host.Links(path)
		if err != nil {
			return nil, "", err
		}
		link := e.chooseDevice(links, record)
		if link == nil {
			continue
		}
		if !record.Step.Moves { // a plugin without a schema may have created another link that looks like the device
			if onHost, err := e.Host.OnHost(*record.Step.Device); err != nil || onHost {
				return nil, "", err
			}
		}
		return link, path, nil
	}
	return nil, "", nil
}

// chooseDevice returns the link of a step's device, or nil if there is none. If several links match because they share
// a parent or are ports of the same PCI function, it returns the link recorded after ADD.
func (e *Executor) chooseDevice(links []cnichain.Link, record *StepRecord) *cnichain.Link {
	var found *cnichain.Link
	for i := range links {
		if !isOwnDevice(&links[i], record.Step.Device, record.Link) {
			continue
		}
		if record.Link != nil && links[i].Same(record.Link) {
			return &links[i]
		}
		if found == nil || isDevice(&links[i], record.Step.Device) || isPort(&links[i], record.Step.Device) {
			found = &links[i]
		}
	}
	return found
}

// isPort reports whether a link has a device's permanent MAC address. The permanent address distinguishes ports of the
// same PCI function, but does not prove identity, because a physical function can change the addresses of its virtual
// functions.
func isPort(link *cnichain.Link, device *cnichain.Device) bool {
	return device.PermMAC != "" && link.PermMAC == device.PermMAC
}

// hasIdentity reports whether a device has a property that an application cannot reproduce on its own link: a bus
// device, a parent, or a peer on the host.
func hasIdentity(device *cnichain.Device) bool {
	return device.ParentDev != "" || device.PeerOnHost || device.Parent != 0 && !linkkind.IsPair(device.Kind)
}

// isOwnDevice reports whether a link in a pod is the given host device. If the device has properties that an
// application cannot change, only those are compared, because an application with NET_ADMIN can change names, addresses
// and indexes. A device without such properties, such as a dummy, is identified by the link recorded after ADD.
func isOwnDevice(link *cnichain.Link, device *cnichain.Device, seen *cnichain.Link) bool {
	switch {
	case device.ParentDev != "":
		return link.ParentDev == device.ParentDev
	case !couldBe(link, device):
		return false
	case hasIdentity(device):
		return link.ParentElsewhere && link.Parent == device.Parent && sameVLAN(link, device)
	case seen != nil:
		return link.Same(seen)
	}
	return isDevice(link, device)
}

// isolated runs isolate, and returns its error only while the plugin's DEL is still expected to return the device.
// After too many failures, the driver itself moves the device out of whichever namespace it is in.
func (e *Executor) isolated(attachment *Attachment, record *StepRecord) error {
	err := e.isolate(attachment, record)
	if err != nil && record.Failures+1 >= repairAfter {
		return nil
	}
	return err
}

var errElsewhere = errors.New("it is in a network namespace that the driver cannot enter; the kernel returns or " +
	"deletes it when that namespace ends, so end the processes in it")

// elsewhere returns nil if a virtual device no longer exists, and an error if it exists in another namespace. known is
// false for link kinds for which this cannot be determined.
func (e *Executor) elsewhere(device *cnichain.Device) (known bool, err error) {
	destroyed, known, err := e.Host.Destroyed(*device)
	if err != nil || !known || destroyed {
		return known, err
	}
	return true, fmt.Errorf("device %s is neither in the pod nor on the host: %w", device.Name, errElsewhere)
}
