package node

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bootSetting is the path of the kernel's boot ID below /proc/sys.
const bootSetting = "kernel/random/boot_id"

// ShowBoot is the createContainer hook on a node in a multi-node cluster: it makes the node's boot ID, instead of the
// kernel's, visible in a container. This is necessary because a container has its own /proc, which does not include the
// files that are mounted over the node's /proc. The format of state is defined by the OCI runtime specification. The
// hook runs in the container's mount namespace, whose root is still the node's. If the hook fails, the container is not
// created, and its error is reported as the reason. A container sees the same boot ID for its whole life, because all
// containers are recreated after the next boot.
func ShowBoot(state io.Reader) error {
	var container struct {
		Bundle string `json:"bundle"`
	}
	if err := json.NewDecoder(state).Decode(&container); err != nil {
		return fmt.Errorf("cannot decode the state of a container: %w", err)
	}
	data, err := os.ReadFile(filepath.Join(container.Bundle, "config.json"))
	if err != nil {
		return fmt.Errorf("cannot read the configuration of a container: %w", err)
	}
	var config struct {
		Root struct {
			Path string `json:"path"`
		} `json:"root"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("cannot decode the configuration of the container in %s: %w", container.Bundle, err)
	}
	root := config.Root.Path
	if !filepath.IsAbs(root) {
		root = filepath.Join(container.Bundle, root)
	}
	target := filepath.Join(root, "proc/sys", bootSetting)
	if _, err := os.Stat(target); os.IsNotExist(err) {
		return nil // the container has no /proc
	}
	return mount(filepath.Join("/proc/sys", bootSetting), target, "", unix.MS_BIND, "")
}
