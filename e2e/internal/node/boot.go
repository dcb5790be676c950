package node

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bootSetting is the kernel's boot ID, below /proc/sys.
const bootSetting = "kernel/random/boot_id"

// ShowBoot is the createContainer hook of one node of several: it shows a container the node's boot ID instead of the
// kernel's. A container has a /proc of its own without the node's mounts over files in /proc. The state of the
// container has the format of the OCI runtime specification; the hook runs in the mount namespace of the container,
// which still has the root of the node. An error of the hook prevents the creation of the container, and is reported as
// the reason. The container keeps the file of this boot; after the next boot all containers are new.
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
