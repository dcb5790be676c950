// Package capability lists the Linux capabilities under the names that Kubernetes uses.
package capability

import (
	"fmt"
	"slices"
)

// Names returns the capabilities in numeric order (include/uapi/linux/capability.h), without "CAP_".
func Names() []string {
	return []string{
		"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
		"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
		"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
		"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
		"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
		"CHECKPOINT_RESTORE",
	}
}

// Number returns the number of the capability with the given name.
func Number(name string) (int, error) {
	number := slices.Index(Names(), name)
	if number < 0 {
		return 0, fmt.Errorf("unknown capability %q: use one of %v", name, Names())
	}
	return number, nil
}
