package plugin

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// littered returns a node with a pod that uses claim-a and with files for a claim and a sandbox that no longer exist.
func littered(t *testing.T) (*fixture, *Driver) {
	f := newFixture(t)
	f.crash()
	f.pinDir = filepath.Join(f.dir, "netns")
	f.start("boot-1")
	d := f.driver()
	d.config.LogDir, d.config.LogRetention = filepath.Join(f.dir, "log"), time.Hour
	d.callLog = calllog.New(d.config.LogDir, func(err error) { t.Error(err) })
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	pin := filepath.Join("netns", host.PinName("a-0", f.clock.Now()))
	for _, name := range []string{
		"cdi/dra.networking-gone.json", "cdi/dra.networking_metadata_gone_net.json",
		"cdi/dra.networking_metadata_claim-a_net.json", "cdi/vendor.com-gpu.json",
		pin, pin + ".standin", "netns/dra-gone.cre66i9s", "netns/dra-lab", "netns/cni-5f", "log/ns_c_gone/s.jsonl",
		"log/ns_c_claim-a/s.jsonl",
	} {
		path := filepath.Join(f.dir, name)
		f.must(os.MkdirAll(filepath.Dir(path), 0o755))
		f.must(os.WriteFile(path, nil, 0o600))
		f.must(os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0)))
	}
	f.must(f.node.Pin(f.runs("gone"), filepath.Join(f.dir, "netns/dra-gone.cre66i9s")))
	return f, d
}

// paths returns the paths of orphans relative to the fixture's directory.
func (f *fixture) paths(found []nodestate.Orphan) []string {
	paths := []string{}
	for _, file := range found {
		if file.Error != "" {
			f.Errorf("%s: %s", file.Path, file.Error)
		}
		path, err := filepath.Rel(f.dir, file.Path)
		f.must(err)
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

func (f *fixture) exists(name string) bool {
	_, err := os.Stat(filepath.Join(f.dir, name))
	return err == nil
}

// Files without an owner are found and removed; all other files are kept.
func TestOrphansIsRemoved(t *testing.T) {
	f, d := littered(t)
	want := []string{"cdi/dra.networking-gone.json", "cdi/dra.networking_metadata_gone_net.json", "log/ns_c_gone",
		"netns/dra-gone.cre66i9s"}
	found, err := d.findOrphans()
	f.must(err)
	if diff := cmp.Diff(want, f.paths(found)); diff != "" {
		t.Errorf("wrong orphans (-want +got):\n%s", diff)
	}
	removed, err := d.removeOrphans(context.Background())
	f.must(err)
	if diff := cmp.Diff(want, f.paths(removed)); diff != "" {
		t.Errorf("wrong removed orphans (-want +got):\n%s", diff)
	}
	for _, gone := range []string{"cdi/dra.networking-gone.json", "cdi/dra.networking_metadata_gone_net.json",
		"log/ns_c_gone"} {
		if f.exists(gone) {
			t.Errorf("orphan %s still exists", gone)
		}
	}
	for _, kept := range []string{"cdi/dra.networking-claim-a.json", "cdi/dra.networking_metadata_claim-a_net.json",
		"cdi/vendor.com-gpu.json", "log/ns_c_claim-a", "netns/cni-5f", "netns/dra-lab"} {
		if !f.exists(kept) {
			t.Errorf("file %s was removed", kept)
		}
	}
	if f.node.Exists(filepath.Join(f.dir, "netns/dra-gone.cre66i9s")) ||
		!f.node.Exists(filepath.Join(f.dir, "netns", host.PinName("a-0", f.clock.Now()))) {
		t.Errorf("wrong pins: %s", f.node)
	}
	if !f.ready("a-0") {
		t.Error("the pod is no longer attached")
	}
}

// Files that acquire an owner between the scan and the removal are kept.
func TestOrphansThatGetsAnOwner(t *testing.T) {
	f, d := littered(t)
	found, err := d.findOrphans()
	f.must(err)
	record := f.prepared("gone", "b", "up1")
	f.must(f.attach("gone", record))
	if pin := pinOf(f, "gone"); pin != filepath.Join(f.dir, "netns/dra-gone.cre66i9s") {
		t.Fatalf("pin = %s, want dra-gone", pin)
	}
	for i := range found {
		f.must(d.removeOrphan(context.Background(), &found[i]))
	}
	for _, kept := range []string{"cdi/dra.networking-gone.json", "cdi/dra.networking_metadata_gone_net.json",
		"log/ns_c_gone"} {
		if !f.exists(kept) {
			t.Errorf("file %s was removed", kept)
		}
	}
	if !f.node.Exists(filepath.Join(f.dir, "netns/dra-gone.cre66i9s")) {
		t.Errorf("the pin was removed: %s", f.node)
	}
}

// The removal waits while the claim is being prepared.
func TestOrphansOfAClaimThatIsBeingPrepared(t *testing.T) {
	f, d := littered(t)
	unlock, err := f.dra.locks.Acquire(context.Background(), "gone")
	f.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	file := nodestate.Orphan{Kind: nodeapi.MetadataSpec,
		Path: filepath.Join(f.dir, "cdi/dra.networking_metadata_gone_net.json"), Claim: "gone"}
	if err := d.removeOrphan(ctx, &file); err == nil || !f.exists("cdi/dra.networking_metadata_gone_net.json") {
		t.Errorf("the spec was removed, or no error was returned: %v", err)
	}
	unlock()
	f.must(d.removeOrphan(context.Background(), &file))
	if f.exists("cdi/dra.networking_metadata_gone_net.json") {
		t.Error("the spec still exists")
	}
}

// After the journal has been lost, the metadata for containers in running pods is kept.
func TestOrphansAfterALostJournal(t *testing.T) {
	f, d := littered(t)
	f.must(os.WriteFile(filepath.Join(f.dir, "journal.db.unreadable-20260101T000000"), nil, 0o600))
	found, err := d.findOrphans()
	f.must(err)
	if diff := cmp.Diff([]string{"cdi/dra.networking-gone.json", "log/ns_c_gone", "netns/dra-gone.cre66i9s"},
		f.paths(found)); diff != "" {
		t.Errorf("wrong orphans (-want +got):\n%s", diff)
	}
}

// The pins of attachments that could not be rolled back are kept, since the next attempt needs them.
func TestOrphansKeepsPinsOfLeftovers(t *testing.T) {
	f, d := littered(t)
	f.dra.Executor.Load(nil,
		map[string]executor.Leftover{"k": {Key: "k",
			Attachment: executor.Attachment{Pin: filepath.Join(f.dir, "netns/dra-gone.cre66i9s"),
				Steps: []executor.StepRecord{{}}}}})
	found, err := d.findOrphans()
	f.must(err)
	if slices.Contains(f.paths(found), "netns/dra-gone.cre66i9s") {
		t.Errorf("orphans = %v, want no pin", found)
	}
}

func TestOrphansOnTheSocket(t *testing.T) {
	f, d := littered(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		code, body := request(d, method, "/garbage")
		var found []nodestate.Orphan
		if err := json.Unmarshal([]byte(body), &found); err != nil || code != http.StatusOK || len(found) != 4 {
			t.Errorf("%s: got status %d, error %v: %s", method, code, err, body)
		}
	}
	if _, body := request(d, http.MethodGet, "/garbage"); body != "[{\"kind\":\"network namespace\",\"path\":\""+
		filepath.Join(f.dir, "netns/dra-gone.cre66i9s")+"\"}]\n" {
		t.Errorf("wrong remaining orphans: %s",
			body) // the fake unpins without removing the file that represents the pin
	}
	d.config.CDIDir = filepath.Join(f.dir, "cdi/vendor.com-gpu.json")
	if code, body := request(d, http.MethodGet, "/garbage"); code != http.StatusInternalServerError {
		t.Errorf("got status %d, want 500: %s", code, body)
	}
}

// Files that are removed by their owner during the scan are not orphans.
func TestOrphansThatGoesByItself(t *testing.T) {
	f, d := littered(t)
	found, err := d.findOrphans()
	f.must(err)
	f.must(os.Remove(filepath.Join(f.dir, "cdi/dra.networking_metadata_gone_net.json")))
	want := []string{"cdi/dra.networking-gone.json", "log/ns_c_gone", "netns/dra-gone.cre66i9s"}
	if diff := cmp.Diff(want, f.paths(slices.DeleteFunc(found, isGone))); diff != "" {
		t.Errorf("wrong orphans (-want +got):\n%s", diff)
	}
}

// pinOf returns the path of the pin for a sandbox's network namespace.
func pinOf(f *fixture, sandbox string) string {
	for _, state := range f.boxes.States() {
		if state.ID == sandbox {
			return state.Pin
		}
	}
	return ""
}

// Metadata is rewritten if either of its files is missing or damaged.
func TestLacksMetadata(t *testing.T) {
	f, d := littered(t)
	record := f.prepared("claim-a", "a", "up0")
	path := filepath.Join(f.dir, "cdi", nodeapi.MetadataName("claim-a", record.Devices[0].Request))
	file := filepath.Join(f.dir, "metadata.json")
	spec := `{"devices": [{"containerEdits": {"mounts": [{"hostPath": "` + file + `"}]}}]}`
	check := func(name string, want bool) {
		t.Helper()
		if got := d.lacksMetadata(&record); got != want {
			t.Errorf("%s: lacksMetadata = %v, want %v", name, got, want)
		}
	}
	write := func(path, content string) {
		t.Helper()
		f.must(metadataFiles().WriteFile(path, []byte(content), 0o600))
	}
	check("no spec", true)
	for _, content := range []string{"", spec[:len(spec)-1], "[]", "{} x"} {
		write(path, content)
		check("spec "+content, true)
	}
	write(path, "{}")
	check("a spec without a file", false)
	write(path, spec)
	check("no file", true)
	for _, content := range []string{"", "{", "{}\n{"} {
		write(file, content)
		check("file "+content, true)
	}
	write(file, "{}\n{}\n")
	check("both", false)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("containers must be able to read the file: info %v, error %v", info, err)
	}
	f.must(os.Remove(file))
	f.must(os.Mkdir(file, 0o700))
	check("a directory", true)
}
