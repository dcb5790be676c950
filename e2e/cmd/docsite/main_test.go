package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// The pictures in docs/diagrams are up to date with their sources.
func TestDiagramsAreDrawn(t *testing.T) {
	err := eachDiagram(filepath.Join("..", "..", "..", "docs", "diagrams"), func(path, picture string) error {
		have, err := os.ReadFile(path)
		if err == nil && string(have) != picture {
			t.Errorf("%s does not match its text: run \"make diagrams\"", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDraw(t *testing.T) {
	picture, err := draw("# A <title>\n\n .---.\n | a |\n '---'\n")
	if err != nil || !strings.Contains(picture, "<title>A &lt;title&gt;</title>") || !strings.Contains(picture, "<path") {
		t.Errorf("draw returned %v and an incomplete picture:\n%s", err, picture)
	}
	if _, err := draw(".---.\n"); err == nil {
		t.Error("drawing a diagram without a title succeeded")
	}
}

func TestCheck(t *testing.T) {
	site := fstest.MapFS{}
	for name, text := range map[string]string{
		"index.html":     `<a href="v1/index.html">v1</a>`,
		"v1/index.html":  `<a href="a.html#part">a</a> <a href="https://example.com/x">x</a> <img src="p.svg"> <a href="#here" id="here">`,
		"v1/a.html":      `<h2 id="part">part</h2> <a href="../index.html">versions</a> <link rel="icon" href="data:,">`,
		"v1/p.svg":       `<svg/>`,
		"v1/broken.html": `<a href="b.html"></a><a href="a.html#nopart"></a><a href="."></a><a href="/a.html"></a><script src="https://cdn.example.com/x.js"></script>`,
	} {
		site[name] = &fstest.MapFile{Data: []byte(text)}
	}
	have, err := check(site)
	if err != nil {
		t.Fatal(err)
	}
	want := result{pages: 4, links: 8, problems: []string{
		"v1/broken.html: .: leads to a folder, which shows nothing without a server",
		"v1/broken.html: /a.html: begins at the top, so the site can't be in a folder",
		"v1/broken.html: a.html#nopart: the page has no such part",
		"v1/broken.html: b.html: leads nowhere",
		"v1/broken.html: https://cdn.example.com/x.js: is loaded from elsewhere",
	}}
	if diff := cmp.Diff(want, have, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if _, err := check(fstest.MapFS{}); err == nil {
		t.Error("a site without pages passed the check")
	}
}

func TestVersions(t *testing.T) {
	folder := t.TempDir()
	for _, version := range []string{"main", "v0.9.0", "v0.10.0", "v0.10.0-rc.1"} {
		if err := os.MkdirAll(filepath.Join(folder, version), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, version, "index.html"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := listVersions(folder); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for _, version := range []string{"v0.10.0", "v0.10.0-rc.1", "v0.9.0", "main"} {
		place := strings.Index(string(text), `href="`+version+`/index.html"`)
		if place <= last {
			t.Errorf("%s is not at the expected position:\n%s", version, text)
		}
		last = place
	}
	if err := listVersions(t.TempDir()); err == nil {
		t.Error("listing the versions of a site without versions succeeded")
	}
}
