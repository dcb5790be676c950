package discovery_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// BenchmarkRead reads machines with so many virtual functions, all with interfaces: from files as sysfs has them, with a
// system call for each step, and from memory, which is the work of this package alone.
func BenchmarkRead(b *testing.B) {
	for _, count := range []int{16, 128, 1024, 2048} {
		h := manyFunctions(max(1, count/128), min(count, 128))
		for _, kind := range []struct {
			name    string
			sources func() discovery.Sources
		}{
			{"files", func() discovery.Sources { return discovery.Sources{Sys: onDisk(b, h), Links: h} }},
			{"memory", h.quickSources},
		} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, count), func(b *testing.B) {
				sources := kind.sources()
				b.ReportAllocs()
				for b.Loop() {
					facts, err := discovery.Read(b.Context(), sources)
					if err != nil || len(facts.Devices) != len(h.links) {
						b.Fatalf("%d devices of %d: %v", len(facts.Devices), len(h.links), err)
					}
				}
			})
		}
	}
}

// onDisk writes the machine's sysfs to files.
func onDisk(b testing.TB, h *host) fs.ReadLinkFS {
	b.Helper()
	root := b.TempDir()
	for name, file := range h.sys {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case file.Mode.Type() == fs.ModeSymlink:
			err = os.Symlink(string(file.Data), path)
		default:
			err = os.WriteFile(path, file.Data, 0o600)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	sys, err := discovery.OpenSysfs(root)
	if err != nil {
		b.Fatal(err)
	}
	return sys
}

// The quick way to read files of sysfs has the same results as that of package os, errors included.
func TestFilesAreReadAsByPackageOS(t *testing.T) {
	h := sriovHost()
	h.files("some", "long="+strings.Repeat("x", 5000), "half="+strings.Repeat("x", 511), "empty=")
	quick := onDisk(t, h)
	root := t.TempDir()
	if err := os.CopyFS(root, quick); err != nil {
		t.Fatal(err)
	}
	plain := os.DirFS(root)
	for _, name := range []string{"some/long", "some/half", "some/empty", "some", "some/none", "some/long/none", "../etc", ""} {
		want, wantErr := fs.ReadFile(plain, name)
		got, gotErr := fs.ReadFile(quick, name)
		if !bytes.Equal(want, got) || (wantErr == nil) != (gotErr == nil) {
			t.Errorf("%q: %d bytes, want %d; error %v, want %v", name, len(got), len(want), gotErr, wantErr)
		}
	}
	facts, err := discovery.Read(t.Context(), discovery.Sources{Sys: quick, Links: h})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read(t, h), facts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
