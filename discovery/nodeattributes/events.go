package nodeattributes

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// Events reports the changes of another source, and changes of attribute files.
type Events struct {
	discovery.Events
	// Path is the path of the directory with attribute files. If it does not exist, Subscribe does not watch it.
	Path string
}

// Subscribe implements discovery.Events. It reports a file once it is closed or moved to the directory: a file that is
// still being written is not valid.
func (e Events) Subscribe(ctx context.Context, changed func()) (<-chan error, error) {
	broken, err := e.Events.Subscribe(ctx, changed)
	if err != nil {
		return nil, err
	}
	descriptor, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return broken, nil //nolint:nilerr // the files are also read periodically
	}
	const events = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE
	_, err = unix.InotifyAddWatch(descriptor, e.Path, events)
	queue := os.NewFile(uintptr(descriptor), "inotify")
	if err != nil {
		_ = queue.Close()
		return broken, nil //nolint:nilerr // as above
	}
	context.AfterFunc(ctx, func() { _ = queue.Close() })
	go func() {
		for buffer := make([]byte, 64<<10); ; changed() {
			if _, err := queue.Read(buffer); err != nil {
				return
			}
		}
	}()
	return broken, nil
}
