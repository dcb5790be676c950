// kubevirt-reader reads device metadata with KubeVirt's own code. It prints the PCI address that virt-launcher would
// use for a device claimed by a virtual machine.
//
// It is a separate module that pins KubeVirt's version and dependencies. "make kubevirt-reader" builds it.
package main

import (
	"flag"
	"fmt"
	"os"
	"syscall"

	kubevirtapi "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/dra"
)

func main() {
	root := flag.String("root", "/", "root directory of the container, such as /proc/PID/root")
	claim := flag.String("claim", "", "name of the ResourceClaim; empty for one that was made of a template")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: kubevirt-reader [-root DIR] [-claim NAME] NAME-IN-POD REQUEST")
		os.Exit(2)
	}
	address, err := read(*root, *claim, flag.Arg(0), flag.Arg(1))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(address)
}

// read returns a device's PCI address as KubeVirt finds it below a root directory. KubeVirt's code uses paths inside
// virt-launcher's container, so read changes the root directory of the whole process. It requires root privileges and
// can be called only once.
func read(root, claim, nameInPod, request string) (string, error) {
	if err := syscall.Chroot(root); err != nil {
		return "", fmt.Errorf("cannot change the root to %s: %w", root, err)
	}
	used := kubevirtapi.VirtualMachineInstanceResourceClaim{}
	used.Name = nameInPod
	if claim != "" {
		used.ResourceClaimName = &claim
	}
	return dra.GetPCIAddressForClaim(dra.DefaultMetadataBasePath,
		[]kubevirtapi.VirtualMachineInstanceResourceClaim{used}, nameInPod, request)
}
