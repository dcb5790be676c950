package gatehook

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// The hook compares inodes, so regular files can stand in for namespaces.
func TestContainersStartOnlyWhereTheirClaimIsAttached(t *testing.T) {
	dir := t.TempDir()
	namespace := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pin := func(process int, name string) string {
		path := filepath.Join(dir, name)
		if err := os.Link(filepath.Join(dir, "proc", fmt.Sprint(process), "ns/net"), path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for process := range 3 {
		namespace(fmt.Sprintf("proc/%d/ns/net", process))
	}
	spec := filepath.Join(dir, "claim.json")
	write := func(pins ...string) {
		data, err := nodeapi.EncodeGate(spec, "example.com/net", "ns/c", nil, pins, "/hook")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(spec, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(process int, want string) {
		t.Helper()
		state := strings.NewReader(fmt.Sprintf(`{"ociVersion":"1.2.0","id":"c1","pid":%d,"bundle":"/b"}`, process))
		err := Run([]string{spec}, state, filepath.Join(dir, "proc"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("process %d: error = %v, want %q", process, err, want)
		}
	}
	first, second := pin(1, "first"), pin(2, "second")
	check(1, "is not attached to any pod")
	write(first)
	check(1, "")
	check(2, "claim ns/c is not attached to the network namespace of this container")
	check(7, "cannot find the network namespace")
	write(first, second)
	check(2, "")
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	namespace("second") // the pin was unmounted
	check(2, "claim ns/c is not attached")
	check(1, "")
	write()
	check(1, "claim ns/c is not attached")
	if err := os.WriteFile(spec, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(1, "cannot parse CDI spec")
}

func TestWrongCalls(t *testing.T) {
	for _, test := range []struct {
		args  []string
		state string
		want  string
	}{
		{nil, `{"pid":1}`, "pass the path of the claim's CDI spec"},
		{[]string{"spec"}, `{`, "cannot read the state"},
		{[]string{"spec"}, `{"id":"c"}`, "contains no process"},
	} {
		if err := Run(test.args, strings.NewReader(test.state), "/proc"); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("args %q, state %s: error = %v, want %q", test.args, test.state, err, test.want)
		}
	}
}
