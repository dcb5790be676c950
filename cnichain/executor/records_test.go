package executor

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// The records of testdata were written by the driver whose executor and Linux host were still parts of cnichain. Every
// field of them is set. They are read whole and written back as they were.
func TestRecordsOfEarlierDriversAreReadWhole(t *testing.T) {
	for name, record := range map[string]any{"leftover.json": &Leftover{}, "plan.json": &cnichain.Plan{}} {
		data, err := os.ReadFile(filepath.Join("testdata", "records", name))
		if err != nil {
			t.Fatal(err)
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(record); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		written, err := json.MarshalIndent(record, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(data), string(written)+"\n"); diff != "" {
			t.Errorf("%s (-read +written):\n%s", name, diff)
		}
	}
}
