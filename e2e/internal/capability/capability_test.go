package capability_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/internal/capability"
)

func TestNumbers(t *testing.T) {
	for name, want := range map[string]int{"CHOWN": unix.CAP_CHOWN, "NET_ADMIN": unix.CAP_NET_ADMIN,
		"SYS_PTRACE": unix.CAP_SYS_PTRACE, "SYS_ADMIN": unix.CAP_SYS_ADMIN, "MKNOD": unix.CAP_MKNOD,
		"SETFCAP": unix.CAP_SETFCAP, "BPF": unix.CAP_BPF, "CHECKPOINT_RESTORE": unix.CAP_LAST_CAP} {
		if got, err := capability.Number(name); err != nil || got != want {
			t.Errorf("%s is %d, %v; want %d", name, got, err, want)
		}
	}
	if _, err := capability.Number("CAP_CHOWN"); err == nil {
		t.Error("a name with CAP_ was accepted")
	}
}
