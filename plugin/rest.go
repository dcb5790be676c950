package plugin

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// restAfter is how long nothing must have changed until the driver gives back memory: while pods come one after the other it
// would be needed again at once.
const restAfter = 2 * time.Second

// giveBack returns the memory of the last computation to the kernel at once. The runtime by itself keeps most of it for minutes.
func giveBack() error {
	debug.FreeOSMemory()
	if err := unmapConstants(); err != nil {
		return fmt.Errorf("cannot unmap the constants of the executable: %w", err)
	}
	return nil
}

// unmapConstants takes the pages of the executable's constants and tables out of the process: most were needed at its start
// only, or are neighbors of one that was. They stay in the page cache, and those that are needed come back from there. Code
// stays: a debugger or a probe may have changed it.
func unmapConstants() error {
	if !constantsAreOfTheFile() {
		return nil
	}
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	self, err := procfs.Self()
	if err != nil {
		return err
	}
	mappings, err := self.ProcMaps()
	if err != nil {
		return err
	}
	for _, m := range mappings {
		if m.Pathname != executable || m.Perms.Write || m.Perms.Execute {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}

// constantsAreOfTheFile says whether they are in memory as they are in the file. Those of an executable that can be loaded
// anywhere (a PIE) have addresses in them that were written at its start, and would be lost.
func constantsAreOfTheFile() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-buildmode", Value: "exe"})
}
