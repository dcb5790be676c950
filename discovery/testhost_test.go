package discovery_test

import (
	"io/fs"
	"testing/fstest"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// mapFS returns the tree as an fstest.MapFS, with white space around file contents, as in a real sysfs.
func mapFS(tree discovery.Tree) fstest.MapFS {
	sys := fstest.MapFS{}
	for name, target := range tree.Links {
		sys[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
	}
	for name, content := range tree.Files {
		sys[name] = &fstest.MapFile{Data: []byte(content + "\n"), Mode: 0o444}
	}
	for _, name := range tree.Dirs {
		sys[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o555}
	}
	return sys
}

// interrupted lists links, but interrupts a number of dumps before it completes one.
type interrupted struct {
	discovery.LinkLister
	left int
}

func (i *interrupted) LinkList() ([]netlink.Link, error) {
	links, err := i.LinkLister.LinkList()
	if i.left > 0 {
		i.left--
		return links[:1], netlink.ErrDumpInterrupted
	}
	return links, err
}

// rawLink returns a link in the netlink library's format, for tests that change properties that are not part of a
// recording.
func rawLink(sources discovery.Sources, name string) *netlink.LinkAttrs {
	links, _ := sources.Links.LinkList()
	for _, l := range links {
		if l.Attrs().Name == name {
			return l.Attrs()
		}
	}
	panic("no link " + name)
}

// onSys returns a copy of the sources that uses a different sysfs.
func onSys(sources discovery.Sources, sys fs.ReadLinkFS) discovery.Sources {
	sources.Sys = sys
	return sources
}
