package netdev

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ip"
	"github.com/containernetworking/plugins/pkg/ipam"
	"github.com/containernetworking/plugins/pkg/ns"
)

// check compares the state of the pod with the result of ADD. It does not take the lock: if the link is moved
// concurrently, DEL is running, and the runtime ignores the result of CHECK.
func check(args *skel.CmdArgs) error {
	conf, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	result, err := conf.previous()
	if err != nil {
		return err
	}
	given := interfaceOf(result, args.IfName)
	if given == nil {
		return fmt.Errorf("cannot check interface %q: prevResult does not have it", args.IfName)
	}
	if conf.IPAM.Type != "" {
		if err := ipam.ExecCheck(conf.IPAM.Type, args.StdinData); err != nil {
			return err
		}
	}
	if given.Mac == "" {
		return nil // a PCI function without a link
	}
	if err := checkLink(args, given); err != nil {
		return err
	}
	return ns.WithNetNSPath(args.Netns, func(ns.NetNS) error {
		return errors.Join(ip.ValidateExpectedInterfaceIPs(args.IfName, result.IPs),
			ip.ValidateExpectedRoute(result.Routes))
	})
}

// checkLink compares the link with the result and with the record, if there is one. The hardware address alone does not
// identify a link, because an application may create a link with the same name and address. The index does; see
// [record].
func checkLink(args *skel.CmdArgs, given *types100.Interface) error {
	pod, err := openNamespace(args.Netns)
	if err != nil {
		return err
	}
	defer pod.close()
	link, err := pod.owner(args.IfName)
	if err != nil {
		return err
	}
	if link == nil {
		return fmt.Errorf("cannot find interface %q in the pod", args.IfName)
	}
	if mac := link.Attrs().HardwareAddr.String(); mac != given.Mac {
		return fmt.Errorf("interface %q has the hardware address %s, not %s", args.IfName, mac, given.Mac)
	}
	r, err := readRecord(recordPath(args.ContainerID, args.IfName))
	if err != nil || r == nil {
		return err
	}
	host, err := openHost()
	if err != nil {
		return err
	}
	defer host.close()
	ours, err := r.isLink(link, host)
	if err == nil && (r.Index != link.Attrs().Index || !ours) {
		err = fmt.Errorf("interface %q is not the device: another link has its name", args.IfName)
	}
	return err
}

// status returns an error if ADD cannot succeed. It does not check the device, which may be in a pod.
func status(args *skel.CmdArgs) error {
	conf, err := readConfig(args.StdinData)
	if err != nil {
		return err
	}
	if conf.IPAM.Type != "" {
		return ipam.ExecStatus(conf.IPAM.Type, args.StdinData)
	}
	return nil
}
