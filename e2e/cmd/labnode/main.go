// Command labnode is process 1 in the namespaces of a lab cluster. It can also turn a separate machine into a cluster
// node, make the node's boot ID visible in a container, or run an OCI runtime for CRI-O. Package lab builds and starts
// it; it is not meant to be run by users.
package main

import (
	"fmt"
	"os"

	"github.com/dra-networking/dra-network-driver/e2e/internal/node"
)

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "boot-id":
		if err := node.ShowBoot(os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, "labnode:", err)
			os.Exit(1)
		}
		return
	case len(os.Args) == 2:
		fmt.Fprintln(os.Stderr, "labnode:", node.Run(os.Args[1])) // it returns only if the node cannot continue
		os.Exit(1)
	case len(os.Args) > 3 && os.Args[1] == node.OCICommand:
		fmt.Fprintln(os.Stderr, "labnode:", node.RunOCI(os.Args[2], os.Args[3:])) // it returns only on error
		os.Exit(1)
	case len(os.Args) > 3 && os.Args[1] == "join":
		status, err := node.Join(os.Args[2], os.Args[3:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "labnode:", err)
			os.Exit(1)
		}
		os.Exit(status)
	}
	fmt.Fprintln(os.Stderr, "labnode: want the cluster's run directory, or join, that directory and a command; use "+
		"the lab command instead")
	os.Exit(2)
}
