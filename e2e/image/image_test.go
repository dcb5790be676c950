package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/e2e/image"
)

func spec(source string) image.Spec {
	return image.Spec{
		Ref: "localhost/thing:e2e",
		Files: []image.File{{Path: "/bin/thing", Source: source},
			{Path: "/etc/thing.conf", Data: []byte("x=1\n"), Mode: 0o600}},
		Links:      map[string]string{"/bin/a": "thing", "/bin/b": "thing", "/bin/c": "/bin/thing"},
		Dirs:       []string{"/var/lib/thing"},
		Entrypoint: []string{"/bin/thing"},
		Env:        []string{"MODE=test"},
		Labels:     map[string]string{"b": "2", "a": "1"},
	}
}

func source(t *testing.T, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "thing")
	if err := os.WriteFile(p, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func write(t *testing.T, s image.Spec) []byte {
	t.Helper()
	p := filepath.Join(t.TempDir(), "image.tar")
	if err := image.Write(p, s); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// files reads a tar file, and returns the contents and headers of its entries, keyed by name.
func files(t *testing.T, data []byte) (map[string][]byte, map[string]*tar.Header) {
	t.Helper()
	content, headers := map[string][]byte{}, map[string]*tar.Header{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return content, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		content[h.Name], headers[h.Name] = b, h
	}
}

func TestSameInputSameBytes(t *testing.T) {
	first := write(t, spec(source(t, "program")))
	for range 20 { // maps are iterated over in a different order each time
		if !bytes.Equal(first, write(t, spec(source(t, "program")))) {
			t.Fatal("the same input resulted in different bytes")
		}
	}
	if bytes.Equal(first, write(t, spec(source(t, "Program")))) {
		t.Fatal("different input resulted in the same bytes")
	}
}

func TestContent(t *testing.T) {
	layout, _ := files(t, write(t, spec(source(t, "program"))))
	for name, data := range layout {
		sum := sha256.Sum256(data)
		if digest, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digest != hex.EncodeToString(sum[:]) {
			t.Errorf("the digest of blob %s differs from its name", name)
		}
	}
	type desc struct {
		Digest      string
		Size        int
		Annotations map[string]string
	}
	get := func(d desc, object any) []byte {
		data := layout["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if len(data) != d.Size || d.Size == 0 {
			t.Fatalf("blob %s has %d bytes, but its descriptor says %d", d.Digest, len(data), d.Size)
		}
		if object != nil {
			if err := json.Unmarshal(data, object); err != nil {
				t.Fatal(err)
			}
		}
		return data
	}
	var index struct{ Manifests []desc }
	if err := json.Unmarshal(layout["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != "localhost/thing:e2e" {
		t.Errorf("image name = %q, want localhost/thing:e2e", got)
	}
	var man struct {
		Config desc
		Layers []desc
	}
	get(index.Manifests[0], &man)
	var config struct {
		Config struct {
			Env, Entrypoint []string
			WorkingDir      string
			Labels          map[string]string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	get(man.Config, &config)
	if config.RootFS.DiffIDs[0] != man.Layers[0].Digest {
		t.Error("the diff ID is not the digest of the uncompressed layer")
	}
	if c := config.Config; c.WorkingDir != "/" || c.Entrypoint[0] != "/bin/thing" || len(c.Env) != 2 ||
		c.Labels["a"] != "1" {
		t.Errorf("unexpected configuration %+v", c)
	}
	checkLayer(t, get(man.Layers[0], nil))
}

func checkLayer(t *testing.T, layer []byte) {
	t.Helper()
	content, headers := files(t, layer)
	if string(content["bin/thing"]) != "program" || headers["bin/thing"].Mode != 0o755 {
		t.Error("bin/thing differs from the given executable")
	}
	if string(content["etc/thing.conf"]) != "x=1\n" || headers["etc/thing.conf"].Mode != 0o600 {
		t.Error("etc/thing.conf differs from the given content")
	}
	if h := headers["bin/a"]; h.Typeflag != tar.TypeSymlink || h.Linkname != "thing" {
		t.Errorf("bin/a = %+v, want a symbolic link to thing", h)
	}
	for _, dir := range []string{"bin/", "etc/", "tmp/", "var/", "var/lib/", "var/lib/thing/"} {
		if h, ok := headers[dir]; !ok || h.Typeflag != tar.TypeDir {
			t.Errorf("directory %s is missing", dir)
		}
	}
	if len(headers) != 11 {
		t.Errorf("the layer has %d entries, want 11", len(headers))
	}
}

func TestBadInputIsRefused(t *testing.T) {
	good := image.File{Path: "/bin/x", Data: []byte("x")}
	file := func(p string) image.Spec {
		return image.Spec{Ref: "localhost/x:y", Files: []image.File{{Path: p, Data: []byte("x")}}}
	}
	for name, s := range map[string]image.Spec{
		"relative":      file("bin/x"),
		"climbs":        file("/bin/../../etc/passwd"),
		"not clean":     file("/bin//x"),
		"root":          file("/"),
		"empty":         file(""),
		"NUL":           file("/bin/x\x00y"),
		"no tag":        {Ref: "localhost/x", Files: []image.File{good}},
		"blank in name": {Ref: "local host/x:y", Files: []image.File{good}},
		"twice":         {Ref: "localhost/x:y", Files: []image.File{good, good}},
		"below a link": {Ref: "localhost/x:y", Files: []image.File{{Path: "/a/x"}},
			Links: map[string]string{"/a": "/etc"}},
		"below a file":    {Ref: "localhost/x:y", Files: []image.File{good, {Path: "/bin/x/y"}}},
		"link to nowhere": {Ref: "localhost/x:y", Links: map[string]string{"/a": ""}},
		"no source":       {Ref: "localhost/x:y", Files: []image.File{{Path: "/x", Source: "/does/not/exist"}}},
		"directory":       {Ref: "localhost/x:y", Files: []image.File{{Path: "/x", Source: "/"}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := image.Write(filepath.Join(dir, "out.tar"), s); err == nil {
				t.Error("an invalid specification was accepted")
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
				t.Errorf("files were left behind: %v", left)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".*.tar.*")); len(left) != 0 {
				t.Errorf("files were left behind: %v", left)
			}
		})
	}
}
