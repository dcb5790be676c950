package deviceonly

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"
)

// TestMain runs the plugin as a program when a test calls its own binary.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		Main()
		return
	}
	os.Exit(m.Run())
}

// Both ways of running the plugin return a result without interfaces, in the configuration's version.
func TestResults(t *testing.T) {
	for _, version := range []string{"0.3.1", "1.1.0"} {
		config := `{"cniVersion": "` + version + `", "name": "n", "type": "device-only"}`
		args := &skel.CmdArgs{StdinData: []byte(config)}
		inProcess, err := InProcess{}.Call(t.Context(), "ADD", args)
		if err != nil {
			t.Fatal(err)
		}
		program := exec.CommandContext(t.Context(), os.Args[0])
		program.Stdin = strings.NewReader(config)
		program.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=c", "CNI_NETNS=/proc/self/ns/net",
			"CNI_IFNAME=net1", "CNI_PATH=/", "CNI_NETNS_OVERRIDE=1")
		printed, err := program.Output()
		if err != nil {
			t.Fatalf("running the program failed: %v: %s", err, printed)
		}
		for name, output := range map[string][]byte{"in process": inProcess, "program": printed} {
			var result map[string]any
			if err := json.Unmarshal(output, &result); err != nil {
				t.Fatalf("%s: cannot parse the result: %v: %s", name, err, output)
			}
			delete(result, "dns") // always printed by the library
			if diff := cmp.Diff(map[string]any{"cniVersion": version}, result); diff != "" {
				t.Errorf("%s, version %s: wrong result (-want +got):\n%s", name, version, diff)
			}
		}
		if output, err := (InProcess{}).Call(t.Context(), "DEL", args); err != nil || len(output) > 0 {
			t.Errorf("DEL returned %q, error = %v; want neither output nor error", output, err)
		}
	}
	if _, err := (InProcess{}).Call(t.Context(), "ADD", &skel.CmdArgs{StdinData: []byte("{")}); err == nil {
		t.Error("a configuration that is not JSON was accepted")
	}
	if (InProcess{}).Accepts("CHECK", nil) {
		t.Error("CHECK is accepted in process, want it rejected")
	}
}
