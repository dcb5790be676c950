package main

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/vishvananda/netlink"
)

const good = `{"mode": "active-backup", "miimon": "100", "failOverMac": 1, "linksInContainer": true, "links": [{"name": "net1"}, {"name": "net2"}], "mtu": 1400}`

func TestParse(t *testing.T) {
	c, err := parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	bond := c.bond("bond0")
	if bond.Mode != netlink.BOND_MODE_ACTIVE_BACKUP || bond.Miimon != 100 ||
		bond.FailOverMac != netlink.BOND_FAIL_OVER_MAC_ACTIVE || bond.MTU != 1400 || bond.Name != "bond0" {
		t.Errorf("got bond %+v, want bond0 with MTU 1400", bond)
	}
	for _, test := range []struct{ old, new, problem string }{
		{`"linksInContainer": true`, `"linksInContainer": false`, "linksInContainer"},
		{`, {"name": "net2"}`, ``, "two or more, not 1"},
		{`active-backup`, `fast`, `mode "fast"`},
		{`"failOverMac": 1`, `"failOverMac": 3`, "failOverMac"},
		{`"100"`, `"often"`, "miimon"},
		{`1400`, `67`, "mtu"},
		{`{"mode"`, `{"mode`, "decode"},
	} {
		if _, err := parse([]byte(strings.Replace(good, test.old, test.new, 1))); err == nil ||
			!strings.Contains(err.Error(), test.problem) {
			t.Errorf("%s: error = %v, want one that contains %q", test.new, err, test.problem)
		}
	}
}

// This is a known weakness of the plugin: if the namespace does not exist, DEL fails unless the runtime passes an empty
// path.
func TestDelWithoutNamespace(t *testing.T) {
	args := &skel.CmdArgs{IfName: "bond0", StdinData: []byte(good)}
	if err := del(args); err != nil {
		t.Errorf("error for an empty path = %v, want none", err)
	}
	args.Netns = t.TempDir() + "/gone"
	if err := del(args); err == nil {
		t.Error("got no error for a path without a namespace")
	}
}
