package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAdaptedSpecifications(t *testing.T) {
	for name, test := range map[string]struct{ spec, want string }{
		"container": {
			`{"ociVersion": "1.2.1", "process": {"oomScoreAdj": -997, "capabilities": {"bounding": ["CAP_CHOWN", "CAP_BPF"]}},
				"linux": {"resources": {"hugepageLimits": [{"pageSize": "2MB"}], "pids": {"limit": -1}, "cpu": {"shares": 2}}}}`,
			`{"ociVersion": "1.0.2", "process": {"oomScoreAdj": 0, "capabilities": {"bounding": ["CAP_CHOWN"]}},
				"linux": {"resources": {"cpu": {"shares": 2}}}}`,
		},
		"process": {
			`{"args": ["sh"], "oomScoreAdj": 1000, "capabilities": {"effective": ["CAP_BPF"]}}`,
			`{"args": ["sh"], "oomScoreAdj": 1000, "capabilities": {"effective": []}}`,
		},
		"limit of processes": {
			`{"process": {}, "linux": {"resources": {"pids": {"limit": 7}}}}`,
			`{"ociVersion": "1.0.2", "process": {}, "linux": {"resources": {"pids": {"limit": 7}}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			decode := func(text string) (object map[string]any) {
				if err := json.Unmarshal([]byte(text), &object); err != nil {
					t.Fatal(err)
				}
				return object
			}
			spec := decode(test.spec)
			adapt(spec, []string{"CAP_CHOWN"})
			encoded, err := json.Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode(test.want), decode(string(encoded))); diff != "" {
				t.Errorf("specification (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSpecificationsInCommandLines(t *testing.T) {
	dir := t.TempDir()
	config, process := filepath.Join(dir, "config.json"), filepath.Join(dir, "process")
	for _, path := range []string{config, process} {
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"create": {[]string{"--root", "/run/runc", "create", "--bundle", dir, "--pid-file", "f", "id"},
			[]string{config}},
		"equals sign":            {[]string{"create", "--bundle=" + dir, "id"}, []string{config}},
		"exec":                   {[]string{"exec", "-p", process, "id"}, []string{process}},
		"without a value":        {[]string{"exec", "-p"}, nil},
		"without files":          {[]string{"delete", "--force", "id"}, nil},
		"file that is not there": {[]string{"create", "-b", filepath.Join(dir, "other"), "id"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, specsOf(test.args)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}
