package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// progressInterval is the interval between progress reports during an uncached build.
const progressInterval = 15 * time.Second

// BuildOptions configures the tools build.
type BuildOptions struct {
	// CacheDir is the directory for binaries; empty means CacheDir().
	CacheDir string
	// Clone is the path of the project's clone; empty means the clone that contains the working directory.
	Clone string
	// Kubernetes is a Kubernetes version such as "1.36"; with a version, only a control plane is supported. Empty means
	// the version in e2e/tools.
	Kubernetes string
	// Progress receives progress messages, one per line; nil discards them.
	Progress io.Writer
}

// Binaries is the location of the built programs.
type Binaries struct {
	// Dir contains the programs, such as kubelet and containerd.
	Dir string
	// CNIDir contains the CNI plugins. It is empty if only a control plane is built.
	CNIDir string
}

// Path returns the path of a program.
func (b Binaries) Path(name string) string {
	return filepath.Join(b.Dir, name)
}

// Cached returns the location of the binaries and reports whether they exist. It needs no lock, since a build directory
// is renamed to its final name only once it is complete.
func Cached(ctx context.Context, o BuildOptions) (Binaries, bool, error) {
	_, b, err := locate(ctx, &o)
	return b, err == nil && exists(b.Dir), err
}

// Build builds all cluster programs unless they exist. The first build takes minutes; later calls reuse the result
// until the module, such as e2e/tools, or the Go version changes. Concurrent calls wait for the one that is building.
func Build(ctx context.Context, o BuildOptions) (Binaries, error) {
	t, b, err := locate(ctx, &o)
	if err != nil || exists(b.Dir) {
		return b, err
	}
	p := newProgress(o.Progress)
	if err := checkCompiler(ctx, p); err != nil {
		return b, err
	}
	unlock, err := lockWithProgress(ctx, b.Dir+".lock", p)
	if err != nil {
		return b, err
	}
	defer unlock()
	if exists(b.Dir) { // another process was faster
		return b, nil
	}
	return b, buildInto(ctx, t, b.Dir, p)
}

// locate finds the module that pins the versions of the programs, and the programs' cache directory, which might not
// exist yet. It does not build anything.
func locate(ctx context.Context, o *BuildOptions) (toolchain, Binaries, error) {
	var err error
	if o.CacheDir, err = cacheDir(o.CacheDir); err != nil {
		return toolchain{}, Binaries{}, err
	}
	if o.Clone == "" {
		if o.Clone, err = findClone(); err != nil {
			return toolchain{}, Binaries{}, err
		}
	}
	module, err := toolsDir(o.Clone, o.Kubernetes)
	if err != nil {
		return toolchain{}, Binaries{}, err
	}
	t, err := readTools(ctx, module)
	dir := filepath.Join(o.CacheDir, "tools-"+t.hash)
	return t, Binaries{Dir: dir, CNIDir: filepath.Join(dir, "cni")}, err
}

// buildInto builds in a temporary directory and renames it when the build is complete. The temporary directory has the
// same parent as the final one, because a directory can be renamed only within a file system. A build that is killed
// leaves a building-* directory behind.
func buildInto(ctx context.Context, t toolchain, dir string, p *progress) error {
	p.step("building %d programs; from nothing this takes 5 to 15 minutes, once", len(t.tools))
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "building-*")
	if err != nil {
		return fmt.Errorf("cannot build the tools: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // has no effect after the rename
	total, err := t.packages(ctx)
	if err != nil {
		return err
	}
	counter := &buildLog{}
	finished := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() { printProgress(p, counter, tmp, total, len(t.tools), finished) })
	err = t.build(ctx, tmp, counter)
	close(finished)
	reporter.Wait()
	if err != nil {
		return fmt.Errorf("cannot build the tools: %w\n%s", err, counter.tail())
	}
	if err := t.arrange(tmp); err != nil {
		return fmt.Errorf("cannot arrange the tools: %w", err)
	}
	// Only the owner can access directories created by MkdirTemp, but other users of the cache may also run the
	// programs.
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("cannot put the tools in place: %w", err)
	}
	p.step("built into %s", dir)
	return nil
}

// printProgress reports the build's progress until finished is closed. Go lists only the packages that it compiles and
// omits cached packages, so the total is an upper bound.
func printProgress(p *progress, log *buildLog, dir string, packages, programs int, finished <-chan struct{}) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-finished:
			return
		case <-tick.C:
			done, err := os.ReadDir(dir)
			if err != nil {
				return
			}
			p.step("compiled %d packages (of %d, less what Go had in its cache), linked %d of %d programs",
				log.packages(), packages, len(done), programs)
		}
	}
}

// buildLog counts the packages listed by go build -v and keeps all other lines, which describe errors. It relies on two
// properties of the go command's output: a package path is the only word in its line, and every other line, such as
// "go: downloading" or the "# PACKAGE" before compiler errors, contains spaces or a hash sign. A read from a pipe may
// end in the middle of a line; part holds the incomplete last line. The lock protects against concurrent reads by
// printProgress.
type buildLog struct {
	mu    sync.Mutex
	part  []byte
	count int
	other []string
}

// Write implements io.Writer.
func (l *buildLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, b...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.line(string(line))
		l.part = rest
	}
}

func (l *buildLog) line(s string) {
	if s == "" || strings.ContainsAny(s, " \t#") {
		l.other = append(l.other, s)
		return
	}
	l.count++
}

func (l *buildLog) packages() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// tail returns the last messages in the log.
func (l *buildLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := append(l.other, string(l.part))
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// lockWithProgress is like lockFile, but for a lock that another process may hold for many minutes. While it waits, it
// says so immediately and then every progressInterval.
func lockWithProgress(ctx context.Context, path string, p *progress) (func(), error) {
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for wait := time.After(time.Second); ; wait = tick.C {
			select {
			case <-ended:
				return
			case <-wait:
				p.step("waiting for another process, which builds the same programs and holds %s", path)
			}
		}
	}()
	return lockFile(ctx, path)
}

// lockFile waits for an exclusive lock. The lock file is never removed, because otherwise two processes could hold the
// lock at the same time. The kernel releases the lock when the process exits, so locks never become stale (flock(2)).
// lockFile polls, because a context cannot interrupt a blocking flock. Child processes do not inherit the descriptor
// and therefore the lock, since Go opens files with O_CLOEXEC.
func lockFile(ctx context.Context, path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	err = poll(ctx, 50*time.Millisecond, func(context.Context) error {
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	})
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("cannot lock %s, which another process holds: %w", path, err)
	}
	return func() { _ = f.Close() }, nil // closing releases the lock
}
