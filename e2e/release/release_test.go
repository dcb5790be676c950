package release_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/e2e/release"
)

const version = "v0.3.1-rc.2"

// project creates a repository that is a minimal version of the project's: programs without imports, and one CNI
// plugin.
func project(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	main := "package main\n\nfunc main() { println(\"tiny\") }\n"
	files := map[string]string{
		"LICENSE":    "the license\n",
		"go.mod":     "module github.com/dra-networking/dra-network-driver\n\ngo 1.24\n",
		".gitignore": "/bin/\n",
		"e2e/tools/go.mod": "module example.com/tools\n\ngo 1.24\n\n" +
			"tool github.com/containernetworking/plugins/plugins/main/tiny\n\n" +
			"require github.com/containernetworking/plugins v1.2.3\n\n" +
			"replace github.com/containernetworking/plugins => ./plugins\n",
		"e2e/tools/plugins/go.mod":                    "module github.com/containernetworking/plugins\n\ngo 1.24\n",
		"e2e/tools/plugins/plugins/main/tiny/main.go": main,
		"deploy/chart/Chart.yaml":                     "name: dra-network-driver\nversion: 0.0.0\nappVersion: dev\n",
		"deploy/chart/values.yaml": "node:\n  image:\n    repository: localhost/dra-network-driver # remark\n" +
			"controller:\n  image:\n    repository: localhost/dra-network-controller\n",
		"deploy/crds/things.yaml": "kind: CustomResourceDefinition\n",
		"deploy/node.yaml": "---\nimage: localhost/dra-network-driver:dev\n---\n" +
			"image: localhost/dra-network-controller:dev\n",
		"deploy/kustomization.yaml": "resources:\n- crds/things.yaml\n- node.yaml\n",
	}
	for _, program := range []string{"dra-network-driver", "dra-network-controller", "dra-network-cni", "netdra"} {
		files["cmd/"+program+"/main.go"] = main
	}
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	if err := os.Symlink("../crds", filepath.Join(dir, "deploy/chart/crds")); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "--quiet")
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message", "tiny")
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git",
		append([]string{"-c", "user.name=Test", "-c", "user.email=test@example.com"},
			args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func makeRelease(t *testing.T, clone string, key *ecdsa.PrivateKey) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "release")
	err := release.Make(t.Context(), release.Options{Clone: clone, Version: version, Registry: "registry.example/team",
		Out: out, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), ".release-*")); len(left) > 0 {
		t.Errorf("directories were left behind: %v", left)
	}
	return out
}

// content returns the contents of the files in a directory, keyed by name.
func content(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		if files[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestRelease(t *testing.T) {
	clone, key := project(t), newKey(t)
	first := makeRelease(t, clone, key)
	t.Run("is verified", func(t *testing.T) {
		report, err := release.Verify(first, version, &key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		if report.Version != version || report.Registry != "registry.example/team" || !report.Signed ||
			report.Builder != release.ByHand || report.Files != 13 {
			t.Errorf("unexpected report %+v", report)
		}
	})
	t.Run("is the same from another folder", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "elsewhere")
		git(t, clone, "clone", "--quiet", clone, other)
		git(t, other, "tag", "v0.9.9") // a higher version on the same commit
		t.Chdir(filepath.Dir(other))
		write(t, other+"-env", "GOFLAGS=-gcflags=-N\n") // as written by "go env -w"
		t.Setenv("GOENV", other+"-env")
		err := release.Make(t.Context(), release.Options{Clone: "elsewhere", Version: version,
			Registry: "registry.example/team", Out: "out/release", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		second := content(t, "out/release")
		for name, data := range content(t, first) {
			if !bytes.Equal(data, second[name]) {
				t.Errorf("%s differs between two runs", name)
			}
			delete(second, name)
		}
		if len(second) > 0 {
			t.Errorf("only the second run created %d files", len(second))
		}
	})
	t.Run("rejects another key", func(t *testing.T) {
		if _, err := release.Verify(first, version, &newKey(t).PublicKey); err == nil {
			t.Error("a signature by another key was accepted")
		}
	})
	t.Run("is not another version", func(t *testing.T) {
		_, err := release.Verify(first, "v0.3.1", &key.PublicKey)
		if err == nil || !strings.Contains(err.Error(), "these are the files of "+version+", not of v0.3.1") {
			t.Errorf("verifying another version returned %v, want an error that names both versions", err)
		}
	})
	t.Run("runs its programs", func(t *testing.T) { selfTest(t, first, &key.PublicKey) })
	t.Run("notices changes", func(t *testing.T) { changes(t, first, key) })
	t.Run("lists what it is made of", func(t *testing.T) { materials(t, first) })
}

// changes makes one change at a time, to each file (with and without matching checksums) and to the set of files, and
// checks that each change is detected.
func changes(t *testing.T, dir string, key *ecdsa.PrivateKey) {
	good := content(t, dir)
	refused := func(t *testing.T, key *ecdsa.PublicKey) {
		t.Helper()
		if _, err := release.Verify(dir, version, key); err == nil {
			t.Error("the change was not detected")
		}
	}
	for name, data := range good {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			bad := bytes.Clone(data)
			bad[len(bad)/2] ^= 1
			write(t, path, string(bad))
			refused(t, &key.PublicKey)
			if !strings.HasPrefix(name, "SHA256SUMS") && name != "provenance.intoto.json" {
				refused(t, nil)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			refused(t, &key.PublicKey)
			write(t, path, string(data))
		})
	}
	write(t, filepath.Join(dir, "more"), "x")
	refused(t, &key.PublicKey)
	if err := os.Remove(filepath.Join(dir, "more")); err != nil {
		t.Fatal(err)
	}
	if _, err := release.Verify(dir, version, &key.PublicKey); err != nil {
		t.Errorf("verifying the unchanged release failed: %v", err)
	}
}

// materials checks that the SBOM contains the plugin's module, and that the provenance contains the files.
func materials(t *testing.T, dir string) {
	files := content(t, dir)
	var bom struct {
		BOMFormat, SpecVersion string
		Components             []struct{ Name, Type, Version string }
	}
	if err := json.Unmarshal(files["sbom_"+version+"_linux_arm64.cdx.json"], &bom); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range bom.Components {
		names = append(names, c.Type+" "+c.Name)
	}
	want := []string{"application dra-network-cni", "application dra-network-controller",
		"application dra-network-driver",
		"application netdra", "application tiny"}
	if bom.BOMFormat != "CycloneDX" || !slices.Equal(names[:5], want) || !slices.Contains(names, "library std") {
		t.Errorf("the SBOM has unexpected format %s %s or components %v", bom.BOMFormat, bom.SpecVersion, names)
	}
	var envelope struct{ Payload []byte }
	if err := json.Unmarshal(files["provenance.intoto.json"], &envelope); err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if !strings.HasPrefix(name, "SHA256SUMS") && name != "provenance.intoto.json" &&
			!bytes.Contains(envelope.Payload, []byte(`"`+name+`"`)) {
			t.Errorf("the provenance does not include %s", name)
		}
	}
}

// An unsigned release is accepted only if no key is given.
func TestUnsigned(t *testing.T) {
	dir := makeRelease(t, project(t), nil)
	if _, err := release.Verify(dir, version, &newKey(t).PublicKey); err == nil {
		t.Error("a release without a signature was accepted as signed")
	}
	if report, err := release.Verify(dir, version, nil); err != nil || report.Signed {
		t.Errorf("verifying an unsigned release without a key returned %+v, %v", report, err)
	}
	t.Run("whose checksums fit another program", func(t *testing.T) { substituted(t, dir) })
}

// substituted makes individual changes with matching checksums, so that only the set of files or the references between
// files are inconsistent, and checks that they are detected.
func substituted(t *testing.T, dir string) {
	const programs = "dra-network-driver_" + version + "_linux_arm64"
	for _, c := range []struct{ name, change, want string }{
		{"SBOM", "sed -i s/std/stb/ sbom_" + version + "_linux_amd64.cdx.json",
			"does not list what the binaries are made of"},
		{"program that is missing", "gunzip " + programs + ".tar.gz && tar --delete --file " + programs + ".tar " +
			programs + "/netdra && gzip " + programs + ".tar", "it lacks " + programs + "/netdra"},
		{"program that is more", "gunzip " + programs + ".tar.gz && mkdir a && echo >a/more && " +
			"tar --append --file " + programs + ".tar -C a more && rm -r a && gzip " + programs + ".tar",
			"more: unexpected or duplicate file"},
		{"file that is missing", "rm netdra_" + version + "_linux_arm64.tar.gz",
			"netdra_" + version + "_linux_arm64.tar.gz is missing"},
		{"file that is more", "echo >install.sh", "install.sh is not a file of release"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "release")
			if err := os.CopyFS(bad, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", c.change+
				` && sha256sum $(ls | LC_ALL=C sort | grep -v SHA256SUMS) >../sums && mv ../sums SHA256SUMS`)
			cmd.Dir = bad
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if _, err := release.Verify(bad, version, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	clone := project(t)
	out := filepath.Join(t.TempDir(), "release")
	refuse := func(name, version, registry, want string) {
		t.Helper()
		err := release.Make(t.Context(), release.Options{Clone: clone, Version: version, Registry: registry, Out: out})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	for _, bad := range []string{"", "0.1.0", "v0.1", "v2.0.0", "v01.0.0", "v0.1.0+dirty", "v0.1.0 --force", "dev"} {
		refuse("version", bad, "localhost", "not a valid version")
	}
	for _, bad := range []string{"", "Registry", "registry.example/", "registry.example/x y", "-x", "a@b"} {
		refuse("registry", "v0.1.0", bad, "is not a registry")
	}
	write(t, filepath.Join(clone, "more"), "x")
	refuse("not committed", "v0.1.0", "localhost", "these files are not committed")
	git(t, clone, "tag", "v0.1.0")
	git(t, clone, "add", "more")
	git(t, clone, "commit", "--quiet", "--message", "more")
	refuse("tag of another commit", "v0.1.0", "localhost", "the tag is on another commit")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	refuse("there already", "v0.1.1", "localhost", "is there already")
}

// selfTest checks that the self-test fails if programs for this machine do not report their version, as is the case for
// those in the minimal project.
func selfTest(t *testing.T, dir string, key *ecdsa.PublicKey) {
	report, err := release.Verify(dir, version, key)
	if err != nil {
		t.Fatal(err)
	}
	err = release.SelfTest(t.Context(), dir, "", report, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `netdra says ""`) {
		t.Errorf("error for programs that do not report their version = %v", err)
	}
}

// Users who have configured git to sign all tags do not need their signing key to make a release.
func TestTagsAreNotSigned(t *testing.T) {
	clone, homeDir := project(t), t.TempDir()
	write(t, filepath.Join(homeDir, ".gitconfig"),
		"[tag]\ngpgSign = true\n[user]\nname = Test\nemail = t@example.com\n")
	t.Setenv("HOME", homeDir)
	t.Setenv("GNUPGHOME", homeDir)
	t.Setenv("VISUAL", "false") // an editor that git starts to ask for a message fails
	dir := filepath.Join(t.TempDir(), "source")
	if _, err := release.Checkout(t.Context(), clone, version, dir); err != nil {
		t.Fatal(err)
	}
}

func TestKeys(t *testing.T) {
	key := newKey(t)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	old, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := x509.MarshalPKCS8PrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, data []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}) }
	for name, good := range map[string][]byte{"PKCS 8": block("PRIVATE KEY", encoded),
		"SEC 1": block("EC PRIVATE KEY", old)} {
		if parsed, err := release.ParseKey(good); err != nil || !parsed.Equal(key) {
			t.Errorf("parsing a valid key (%s) failed: %v", name, err)
		}
	}
	for name, bad := range map[string][]byte{"nothing": nil, "P-384": block("PRIVATE KEY", wrong),
		"password": block("ENCRYPTED SIGSTORE PRIVATE KEY", encoded), "broken": block("PRIVATE KEY", encoded[:40])} {
		if _, err := release.ParseKey(bad); err == nil {
			t.Errorf("%s was accepted", name)
		}
		if _, err := release.ParsePublicKey(bad); err == nil {
			t.Errorf("%s was accepted as a public key", name)
		}
	}
}
