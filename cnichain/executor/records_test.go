package executor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// The records in testdata were written by a driver version in which the executor and the Linux host were still part of
// package cnichain. All of their fields are set. The records must be read in full and written back unchanged. The only
// exception is a renamed field, which is written under both names for the sake of earlier versions of the driver and
// netdra.
func TestRecordsOfEarlierDriversAreReadWhole(t *testing.T) {
	for name, record := range map[string]any{"leftover.json": &Leftover{}, "plan.json": &cnichain.Plan{}} {
		data, err := os.ReadFile(filepath.Join("testdata", "records", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, record); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		written, err := json.MarshalIndent(record, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		read := strings.Replace(string(data), `"home": true`, "\"onHost\": true,\n  \"home\": true", 1)
		if diff := cmp.Diff(read, string(written)+"\n"); diff != "" {
			t.Errorf("%s (-read +written):\n%s", name, diff)
		}
	}
}
