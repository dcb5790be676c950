// kubevirt-reader reads the metadata of devices as KubeVirt does, with KubeVirt's own code: what virt-launcher takes as
// the PCI address of a device that a claim gives to a virtual machine.
//
// It is a module of its own, with KubeVirt's version and what that needs, and is built by "make kubevirt-reader".
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

// read returns the PCI address of a device as KubeVirt finds it below a root. It needs root, and changes the root of
// the whole process: it is good for one reading. KubeVirt's code has paths as virt-launcher sees them.
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
