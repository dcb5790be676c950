package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// probeTime is more than enough for a machine that boots with KVM.
const probeTime = 20 * time.Second

// chooseAccelerator selects KVM if a machine boots with it. It is not enough that /dev/kvm exists: if the host itself
// is a virtual machine, nested virtualization may be available but hang, or not support a feature that the kernel
// requires. A test boot is the only reliable check. It has a time limit, and its result is cached until the host
// reboots, so a test boot fails at most once per host boot. The caller must hold the image lock, which prevents
// concurrent test boots. A machine with an empty command switches itself off as soon as it has booted.
func (i *Image) chooseAccelerator(ctx context.Context) (string, error) {
	if err := unix.Access("/dev/kvm", unix.R_OK|unix.W_OK); err != nil {
		return emulation, nil //nolint:nilerr // it does not exist, or this user has no access
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot tell one boot of this machine from another: %w", err)
	}
	file := i.dir + ".accelerator"
	note := strings.TrimSpace(string(boot)) + " "
	if data, err := os.ReadFile(file); err == nil {
		if known, ok := strings.CutPrefix(string(data), note); ok {
			return known, nil
		}
	}
	found := kvm
	if _, err := i.run(ctx, Command{Timeout: probeTime}, kvm); err != nil {
		found = emulation
	}
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	i.printf("machines run with %s, kept in %s", found, filepath.Base(file))
	if err := os.WriteFile(file, []byte(note+found), 0o644); err != nil {
		return "", fmt.Errorf("cannot keep how machines run: %w", err)
	}
	return found, nil
}
