// Command labnode is process 1 inside the namespaces of a lab cluster. The lab package builds and starts it; it is of no
// use on its own.
package main

import (
	"fmt"
	"os"

	"github.com/dra-networking/dra-network-driver/e2e/internal/node"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "labnode: want one argument, the cluster's run directory; use the lab command instead")
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "labnode:", node.Run(os.Args[1])) // it returns only when the node cannot go on
	os.Exit(1)
}
