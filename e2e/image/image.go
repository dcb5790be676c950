package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Media types of the OCI image format.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// descriptor points at a blob of the image.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type configFile struct {
	platform
	Config runConfig `json:"config"`
	RootFS rootFS    `json:"rootfs"`
}

type runConfig struct {
	User       string            `json:"User,omitempty"`
	Env        []string          `json:"Env,omitempty"`
	Entrypoint []string          `json:"Entrypoint,omitempty"`
	Cmd        []string          `json:"Cmd,omitempty"`
	WorkingDir string            `json:"WorkingDir"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// Write packs the image that s describes into the tar file at path, in the OCI image layout with one uncompressed
// layer. The file appears complete or not at all.
func Write(path string, s Spec) error {
	entries, err := s.entries()
	if err != nil {
		return fmt.Errorf("cannot write image %q: %w", s.Ref, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("cannot write image %q: %w", s.Ref, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone already after the rename
	err = writeLayout(tmp, s, entries)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("cannot write image %q: %w", s.Ref, err)
	}
	return nil
}

// writeLayout writes the image layout. The layer is generated twice, first to learn its digest and size and then to
// write it, so that large binaries need neither memory nor a temporary file.
func writeLayout(w io.Writer, s Spec, entries []entry) error {
	layer, err := measure(entries)
	if err != nil {
		return err
	}
	plat := platform{Architecture: runtime.GOARCH, OS: "linux"}
	config, configDesc, err := blob(typeConfig, configFile{
		platform: plat,
		Config: runConfig{
			User: s.User, Env: s.env(), Entrypoint: s.Entrypoint, Cmd: s.Cmd, WorkingDir: "/", Labels: s.Labels,
		},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{layer.Digest}},
	})
	if err != nil {
		return err
	}
	man, manDesc, err := blob(typeManifest, manifest{
		SchemaVersion: 2, MediaType: typeManifest, Config: configDesc, Layers: []descriptor{layer},
	})
	if err != nil {
		return err
	}
	manDesc.Platform = &plat
	// containerd reads the first name, other tools the second.
	manDesc.Annotations = map[string]string{
		"io.containerd.image.name":          s.Ref,
		"org.opencontainers.image.ref.name": s.Ref,
	}
	idx, _, err := blob(typeIndex, index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{manDesc}})
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", idx},
		{blobName(configDesc), config},
		{blobName(manDesc), man},
	} {
		if err := addBlob(out, f.name, f.data); err != nil {
			return err
		}
	}
	if err := addLayer(out, layer, entries); err != nil {
		return err
	}
	return out.Close()
}

// measure generates the layer once, only to learn its digest and size.
func measure(entries []entry) (descriptor, error) {
	m := newMeter(io.Discard)
	if err := writeLayer(m, entries); err != nil {
		return descriptor{}, err
	}
	return descriptor{MediaType: typeLayer, Digest: m.digest(), Size: m.size}, nil
}

// addLayer writes the layer into out and makes sure that it is the one that was measured.
func addLayer(out *tar.Writer, want descriptor, entries []entry) error {
	if err := out.WriteHeader(header(blobName(want), want.Size)); err != nil {
		return err
	}
	m := newMeter(out)
	if err := writeLayer(m, entries); err != nil {
		return err
	}
	if got := m.digest(); got != want.Digest {
		return fmt.Errorf("a source file changed while the image was being packed (layer %s became %s): pack it again",
			want.Digest, got)
	}
	return nil
}

func addBlob(out *tar.Writer, name string, data []byte) error {
	if err := out.WriteHeader(header(name, int64(len(data)))); err != nil {
		return err
	}
	_, err := out.Write(data)
	return err
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)}
}

func blobName(d descriptor) string {
	return "blobs/sha256/" + d.Digest[len("sha256:"):]
}

// blob encodes v and describes the result.
func blob(mediaType string, v any) ([]byte, descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, descriptor{}, fmt.Errorf("cannot encode %s: %w", mediaType, err)
	}
	sum := sha256.Sum256(data)
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(data))}
	return data, d, nil
}

// meter counts and digests what passes through it.
type meter struct {
	out  io.Writer
	hash hash.Hash
	size int64
}

func newMeter(out io.Writer) *meter {
	return &meter{out: out, hash: sha256.New()}
}

// Write implements io.Writer.
func (m *meter) Write(p []byte) (int, error) {
	n, err := m.out.Write(p)
	m.hash.Write(p[:n]) // never fails, says package hash
	m.size += int64(n)
	return n, err
}

func (m *meter) digest() string {
	return "sha256:" + hex.EncodeToString(m.hash.Sum(nil))
}
