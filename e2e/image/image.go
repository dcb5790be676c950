package image

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Media types of the OCI image format.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
	typeGzip     = typeLayer + "+gzip"
)

// descriptor refers to a blob in the image. This type and those below are the parts of the OCI image specification that
// this package writes. encoding/json preserves the order of struct fields and sorts map keys, so the same value is
// always encoded in the same way.
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

// configFile is an image's configuration. It omits the time and the history, which are optional in the specification.
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

// Write packs an image into the tar file at path, using the OCI image layout with a single layer. There is one spec for
// each architecture. Write replaces the file atomically, so processes that are reading the old file are not affected.
// If two calls for the same path run concurrently, the last one to finish wins. Source files are read twice, and a
// change between the two reads is an error. The temporary file is in the same directory, so that it can be renamed.
func Write(path string, specs ...Spec) error {
	if err := checkSpecs(specs); err != nil {
		return fmt.Errorf("cannot write image %q: %w", path, err)
	}
	err := writeFile(path, func(w io.Writer) error { return writeLayout(w, specs) })
	if err != nil {
		return fmt.Errorf("cannot write image %q: %w", specs[0].Ref, err)
	}
	return nil
}

// checkSpecs rejects specs that do not form a single image. An index may contain two manifests for the same
// architecture, but which one a runtime chooses would be undefined.
func checkSpecs(specs []Spec) error {
	if len(specs) == 0 {
		return errors.New("it has no spec")
	}
	known := map[string]bool{}
	for _, s := range specs {
		if s.Ref != specs[0].Ref {
			return fmt.Errorf("one image has the names %q and %q: use one", specs[0].Ref, s.Ref)
		}
		if known[s.architecture()] {
			return fmt.Errorf("the image is for %s twice: remove one of the two", s.architecture())
		}
		known[s.architecture()] = true
	}
	return nil
}

// writeFile replaces a file atomically: concurrent readers still see the previous content.
func writeFile(path string, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // fails once the complete file has been renamed
	err = write(tmp)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// variant is the image for one architecture.
type variant struct {
	spec             Spec
	entries          []entry
	layer            descriptor
	config, manifest named
}

// named is an encoded blob together with its descriptor.
type named struct {
	data []byte
	desc descriptor
}

// newVariant generates the layer only to determine its digest and size. In the manifest and the tar file, the
// descriptor precedes the layer, so the digest and the size must be known before the layer is written.
func newVariant(s Spec) (variant, error) {
	entries, err := s.entries()
	if err != nil {
		return variant{}, err
	}
	v := variant{spec: s, entries: entries}
	m := newMeter(io.Discard)
	diffID, err := encodeLayer(m, entries, s.Compressed)
	if err != nil {
		return v, err
	}
	v.layer = descriptor{MediaType: s.layerType(), Digest: m.digest(), Size: m.size}
	plat := platform{Architecture: s.architecture(), OS: "linux"}
	v.config, err = blob(typeConfig, configFile{
		platform: plat,
		Config: runConfig{
			User: s.User, Env: s.env(), Entrypoint: s.Entrypoint, Cmd: s.Cmd, WorkingDir: "/", Labels: s.Labels,
		},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{diffID}},
	})
	if err != nil {
		return v, err
	}
	v.manifest, err = blob(typeManifest, manifest{
		SchemaVersion: 2, MediaType: typeManifest, Config: v.config.desc, Layers: []descriptor{v.layer},
	})
	v.manifest.desc.Platform = &plat
	return v, err
}

// writeLayout writes the image layout. Each layer is generated twice, first to determine its digest and size and then
// to write it, so that large binaries require neither memory nor a temporary file. index.json has a single entry, even
// for several architectures. The index of the architectures is a separate blob, whose digest identifies the image in a
// registry.
func writeLayout(w io.Writer, specs []Spec) error {
	variants := make([]variant, 0, len(specs))
	var blobs []named
	var manifests []descriptor
	for _, s := range specs {
		v, err := newVariant(s)
		if err != nil {
			return err
		}
		variants, manifests = append(variants, v), append(manifests, v.manifest.desc)
		blobs = append(blobs, v.config, v.manifest)
	}
	top := manifests[0]
	if len(manifests) > 1 {
		all, err := blob(typeIndex, index{SchemaVersion: 2, MediaType: typeIndex, Manifests: manifests})
		if err != nil {
			return err
		}
		blobs, top = append(blobs, all), all.desc
	}
	// containerd reads the first annotation; other tools read the second.
	top.Annotations = map[string]string{
		"io.containerd.image.name":          specs[0].Ref,
		"org.opencontainers.image.ref.name": specs[0].Ref,
	}
	idx, err := blob(typeIndex, index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{top}})
	if err != nil {
		return err
	}
	return writeBlobs(tar.NewWriter(w), idx.data, blobs, variants)
}

// writeBlobs writes an OCI image layout (image-spec, image-layout.md). It writes each blob only once.
func writeBlobs(out *tar.Writer, idx []byte, blobs []named, variants []variant) error {
	err := errors.Join(addBlob(out, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		addBlob(out, "index.json", idx))
	if err != nil {
		return err
	}
	written := map[string]bool{} // architectures may share a blob
	for _, b := range blobs {
		if written[b.desc.Digest] {
			continue
		}
		written[b.desc.Digest] = true
		if err := addBlob(out, blobName(b.desc), b.data); err != nil {
			return err
		}
	}
	for _, v := range variants {
		if written[v.layer.Digest] {
			continue
		}
		written[v.layer.Digest] = true
		if err := addLayer(out, v); err != nil {
			return err
		}
	}
	return out.Close()
}

// encodeLayer writes the layer in its stored form, and returns the digest of the uncompressed layer. A registry
// identifies the layer by its stored form, whereas the configuration contains the digest of the uncompressed layer
// (diff_id), so that the same layer is recognized even if it has been compressed differently.
func encodeLayer(w io.Writer, entries []entry, compressed bool) (string, error) {
	if !compressed {
		m := newMeter(w)
		return m.digestAfter(writeLayer(m, entries))
	}
	packed := gzip.NewWriter(w)
	m := newMeter(packed)
	err := writeLayer(m, entries)
	if cerr := packed.Close(); err == nil {
		err = cerr
	}
	return m.digestAfter(err)
}

// addLayer writes the layer to out and checks that its digest has not changed since newVariant.
func addLayer(out *tar.Writer, v variant) error {
	if err := out.WriteHeader(header(blobName(v.layer), v.layer.Size)); err != nil {
		return err
	}
	m := newMeter(out)
	if _, err := encodeLayer(m, v.entries, v.spec.Compressed); err != nil {
		return err
	}
	if got := m.digest(); got != v.layer.Digest {
		return fmt.Errorf("a source file changed while the image was being packed (layer %s became %s): pack it again",
			v.layer.Digest, got)
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

// blob encodes v as JSON and returns the blob with its descriptor.
func blob(mediaType string, v any) (named, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return named{}, fmt.Errorf("cannot encode %s: %w", mediaType, err)
	}
	sum := sha256.Sum256(data)
	return named{data: data, desc: descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]),
		Size: int64(len(data))}}, nil
}

// meter counts and hashes the data that passes through it. It includes only bytes that the underlying writer has
// accepted, so the count and the digest are correct even after an error.
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
	m.hash.Write(p[:n]) // never fails (package hash)
	m.size += int64(n)
	return n, err
}

func (m *meter) digest() string {
	return "sha256:" + hex.EncodeToString(m.hash.Sum(nil))
}

func (m *meter) digestAfter(err error) (string, error) {
	if err != nil {
		return "", err
	}
	return m.digest(), nil
}
