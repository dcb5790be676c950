package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
)

// The version output identifies the build even if the driver does not respond.
func TestVersions(t *testing.T) {
	socket := answering(t, map[string]any{"/state": map[string]any{
		"version": "v1.2.3 (go1.26.0)", "versions": map[string]string{"kubelet": "v1.37.1",
			"runtime": "containerd://2.4.2", "kernel": "6.12.9"},
	}})
	for _, test := range []struct {
		arguments []string
		want, not string
	}{
		{[]string{"version", "--socket", socket}, ", driver v1.2.3 (go1.26.0), kubelet v1.37.1, containerd 2.4.2, " +
			"kernel 6.12.9", ""},
		{[]string{"version", "--socket", socket, "-o", "json"}, `"driver": "v1.2.3 (go1.26.0)"`, ""},
		{[]string{"version", "--socket", socket, "-o", "json"}, `"version": "`, "version-control"},
		{[]string{"version", "--socket", filepath.Join(t.TempDir(), "none")}, "netdra ", "driver"},
		{[]string{"--version"}, "netdra version " + version.Get().Describe() + "\n", ""},
	} {
		code, stdout, stderr := runNetdra(t, "", test.arguments...)
		if code != exit.OK || !strings.Contains(stdout, test.want) || test.not != "" &&
			strings.Contains(stdout, test.not) {
			t.Errorf("%v: exit status %d, stdout %q, stderr %q; want %q and not %q", test.arguments, code, stdout,
				stderr, test.want, test.not)
		}
	}
}
