package image_test

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/e2e/image"
)

// multi writes an image for two architectures that share a file.
func multi(t *testing.T) string {
	t.Helper()
	first, second := spec(source(t, "one")), spec(source(t, "two"))
	first.Architecture, second.Architecture = "amd64", "arm64"
	first.Compressed, second.Compressed = true, true
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := image.Write(path, first, second); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(path string) (map[string]string, image.Summary, error) {
	found := map[string]string{}
	summary, err := image.Read(path, func(architecture, name string, content io.Reader) error {
		data, err := io.ReadAll(content)
		found[architecture+name] = string(data)
		return err
	})
	return found, summary, err
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := multi(t)
	found, summary, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{
		"amd64/bin/thing": "one", "amd64/etc/thing.conf": "x=1\n",
		"arm64/bin/thing": "two", "arm64/etc/thing.conf": "x=1\n",
	}, found); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if labels := (map[string]string{"a": "1", "b": "2"}); summary.Ref != "localhost/thing:e2e" ||
		!maps.Equal(summary.Labels["arm64"], labels) || !maps.Equal(summary.Labels["amd64"], labels) {
		t.Errorf("unexpected summary %+v", summary)
	}
	again := multi(t)
	if !bytes.Equal(content(t, path), content(t, again)) {
		t.Error("the same input resulted in different bytes")
	}
	single := filepath.Join(t.TempDir(), "single.tar")
	if err := image.Write(single, spec(source(t, "program"))); err != nil {
		t.Fatal(err)
	}
	if found, _, err := read(single); err != nil || len(found) != 2 {
		t.Errorf("reading an image for one architecture returned %v, %v; want two files", found, err)
	}
}

// Read rejects an image if any byte in a blob has been changed, or if a reference to a blob is wrong.
func TestChangedImageIsRefused(t *testing.T) {
	path := multi(t)
	good := content(t, path)
	for name, change := range map[string]func([]byte){
		"a layer":         func(b []byte) { b[len(b)-4096] ^= 1 },
		"a configuration": func(b []byte) { b[bytes.Index(b, []byte(`"MODE=test"`))+1] ^= 1 },
		"a manifest":      func(b []byte) { b[bytes.Index(b, []byte(`"layers":`))+1] ^= 1 },
		"the index": func(b []byte) {
			digit := bytes.Index(b, []byte(`"digest":"sha256:`)) + len(`"digest":"sha256:`)
			b[digit] = "01"[b[digit]&1^1]
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Clone(good)
			change(bad)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := read(path); err == nil {
				t.Error("a damaged image was accepted")
			}
		})
	}
}

func TestSpecsOfOneImage(t *testing.T) {
	amd64, other := spec(source(t, "one")), spec(source(t, "two"))
	other.Ref = "localhost/other:e2e"
	other.Architecture = "arm64"
	for name, specs := range map[string][]image.Spec{"two names": {amd64, other}, "twice": {amd64, amd64}, "none": nil} {
		if err := image.Write(filepath.Join(t.TempDir(), "x.tar"), specs...); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
