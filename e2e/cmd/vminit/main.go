// Command vminit is the init process in the machines that package e2e/vm boots. It has no other purpose.
package main

import (
	"fmt"
	"os"

	"github.com/dra-networking/dra-network-driver/e2e/vm/guest"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "vminit is the first process of a machine: use \"lab vm\"")
		os.Exit(2)
	}
	if err := guest.Run(); err != nil {
		fmt.Println("vminit:", err)
	}
}
