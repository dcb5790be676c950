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
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
)

// BenchmarkRead reads machines with various numbers of virtual functions, all of which have interfaces. It reads from
// files, as in sysfs, where every step is a system call, and from memory, which measures only the work done in this
// package.
func BenchmarkRead(b *testing.B) {
	for _, count := range []int{16, 128, 1024, 2048} {
		h := discoverytest.Machine(max(1, count/128), min(count, 128))
		for _, kind := range []struct {
			name    string
			sources func() discovery.Sources
		}{
			{"files", func() discovery.Sources { return onSys(h.Sources(), onDisk(b, h.Sys)) }},
			{"memory", h.Sources},
		} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, count), func(b *testing.B) {
				sources := kind.sources()
				b.ReportAllocs()
				for b.Loop() {
					facts, err := discovery.Read(b.Context(), sources)
					if err != nil || len(facts.Devices) != len(h.Netlink.Links) {
						b.Fatalf("got %d devices, want %d: %v", len(facts.Devices), len(h.Netlink.Links), err)
					}
				}
			})
		}
	}
}

// onDisk writes a sysfs tree to files and opens the result.
func onDisk(b testing.TB, tree discovery.Tree) fs.ReadLinkFS {
	b.Helper()
	root := b.TempDir()
	for name, file := range mapFS(tree) {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case file.Mode.IsDir():
			err = os.MkdirAll(path, 0o755)
		case file.Mode.Type() == fs.ModeSymlink:
			err = os.Symlink(string(file.Data), path)
		default:
			err = os.WriteFile(path, file.Data, 0o600)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return openSysfs(b, root)
}

// The fast reader for sysfs files returns the same results as package os, including errors.
func TestFilesAreReadAsByPackageOS(t *testing.T) {
	h := discoverytest.SRIOV()
	h.WriteFiles("some", "long="+strings.Repeat("x", 5000), "half="+strings.Repeat("x", 511), "empty=")
	quick := onDisk(t, h.Sys)
	root := t.TempDir()
	if err := os.CopyFS(root, quick); err != nil {
		t.Fatal(err)
	}
	plain := os.DirFS(root)
	for _, name := range []string{"some/long", "some/half", "some/empty", "some", "some/none", "some/long/none",
		"../etc", ""} {
		want, wantErr := fs.ReadFile(plain, name)
		got, gotErr := fs.ReadFile(quick, name)
		if !bytes.Equal(want, got) || (wantErr == nil) != (gotErr == nil) {
			t.Errorf("%q: got %d bytes, want %d; got error %v, want %v", name, len(got), len(want), gotErr, wantErr)
		}
	}
	facts, err := discovery.Read(t.Context(), onSys(h.Sources(), quick))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read(t, h), facts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
