package image

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxDocument is the maximum size, in bytes, of an index, manifest or configuration. It limits how much memory a
// hostile archive can consume. Layers are never kept in memory.
const maxDocument = 1 << 20

// Summary describes the image in an archive.
type Summary struct {
	// Ref is the name under which the image is imported.
	Ref string
	// Digest identifies the image in a registry: it is the digest of the index of all architectures, or of the only
	// manifest.
	Digest string
	// Labels contains the image's labels for each architecture.
	Labels map[string]map[string]string
}

// Read verifies an archive written by Write: all blobs must match the digests and sizes in the descriptors that
// reference them, and the archive must not contain other blobs. For each regular file for each architecture, Read calls
// visit with the file's absolute path. The content comes from a blob with the correct digest, but the digest of the
// uncompressed layer, which is in the configuration, is verified only at the end. Therefore, the data passed to visit
// must not be used unless Read returns no error. If visit returns an error, Read stops and returns that error. visit
// does not have to read a file completely. Links and directories are not visited, so a name never refers to another
// file.
func Read(path string, visit func(architecture, name string, content io.Reader) error) (Summary, error) {
	f, err := os.Open(path)
	if err != nil {
		return Summary{}, err
	}
	defer func() { _ = f.Close() }() // used only for reading
	r := &reader{file: f, blobs: map[string]span{}, used: map[string]bool{}, visit: visit}
	summary, err := r.read()
	if err != nil {
		return Summary{}, fmt.Errorf("cannot verify image %q: %w", path, err)
	}
	return summary, nil
}

// span is the position of a blob in the archive.
type span struct{ start, size int64 }

// reader verifies one archive. used contains the digests that are referenced, because an unreferenced blob could hide
// data from an inspection of the image.
type reader struct {
	file  *os.File
	blobs map[string]span // by digest
	used  map[string]bool
	index []byte
	visit func(architecture, name string, content io.Reader) error
}

// read reads an archive and checks every referenced blob against its digest, so that a summary describes the actual
// content.
func (r *reader) read() (Summary, error) {
	if err := r.scan(); err != nil {
		return Summary{}, err
	}
	var top index
	if err := json.Unmarshal(r.index, &top); err != nil {
		return Summary{}, fmt.Errorf("cannot decode index.json: %w", err)
	}
	if len(top.Manifests) != 1 {
		return Summary{}, fmt.Errorf("index.json names %d images, want one", len(top.Manifests))
	}
	image := top.Manifests[0]
	summary := Summary{Ref: image.Annotations["org.opencontainers.image.ref.name"], Digest: image.Digest,
		Labels: map[string]map[string]string{}}
	manifests := []descriptor{image}
	if image.MediaType == typeIndex {
		var all index
		if err := r.document(image, &all); err != nil {
			return Summary{}, err
		}
		manifests = all.Manifests
	}
	for _, m := range manifests {
		config, err := r.variant(m)
		if err != nil {
			return Summary{}, err
		}
		summary.Labels[config.Architecture] = config.Config.Labels
	}
	for digest := range r.blobs {
		if !r.used[digest] {
			return Summary{}, fmt.Errorf("nothing points at blob %s", digest)
		}
	}
	return summary, nil
}

// scan records the position of each blob, and checks that the blob's digest matches its name.
func (r *reader) scan() error {
	archive := tar.NewReader(r.file)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the archive: %w", err)
		}
		start, err := r.file.Seek(0, io.SeekCurrent) // archive/tar does not read ahead
		if err != nil {
			return err
		}
		hex, isBlob := strings.CutPrefix(h.Name, "blobs/sha256/")
		switch {
		case isBlob:
			m := newMeter(io.Discard)
			if _, err := io.Copy(m, archive); err != nil {
				return fmt.Errorf("cannot read %s: %w", h.Name, err)
			}
			if m.digest() != "sha256:"+hex {
				return fmt.Errorf("%s has digest %s", h.Name, m.digest())
			}
			r.blobs[m.digest()] = span{start: start, size: h.Size}
		case h.Name == "index.json":
			if r.index, err = io.ReadAll(io.LimitReader(archive, maxDocument)); err != nil {
				return fmt.Errorf("cannot read index.json: %w", err)
			}
		case h.Name != "oci-layout":
			return fmt.Errorf("%q is not part of an image", h.Name)
		}
	}
}

// open returns the content of the blob that a descriptor refers to, and marks the blob as used. It may be called more
// than once for the same blob, because two architectures may share a layer.
func (r *reader) open(d descriptor) (*io.SectionReader, error) {
	where, ok := r.blobs[d.Digest]
	if !ok {
		return nil, fmt.Errorf("blob %s is missing", d.Digest)
	}
	if where.size != d.Size {
		return nil, fmt.Errorf("blob %s has %d bytes, its descriptor says %d", d.Digest, where.size, d.Size)
	}
	r.used[d.Digest] = true
	return io.NewSectionReader(r.file, where.start, where.size), nil
}

// document decodes a JSON blob. open verifies that the blob has the size in the descriptor, so the size limit applies
// to the actual content.
func (r *reader) document(d descriptor, object any) error {
	if d.Size > maxDocument {
		return fmt.Errorf("blob %s has %d bytes, more than %d", d.Digest, d.Size, maxDocument)
	}
	content, err := r.open(d)
	if err != nil {
		return err
	}
	if err := json.NewDecoder(content).Decode(object); err != nil {
		return fmt.Errorf("cannot decode blob %s: %w", d.Digest, err)
	}
	return nil
}

// variant verifies the image for one architecture. The platform is recorded in two places, which must match, because
// runtimes may read either of them.
func (r *reader) variant(d descriptor) (configFile, error) {
	var m manifest
	var config configFile
	if err := r.document(d, &m); err != nil {
		return config, err
	}
	if err := r.document(m.Config, &config); err != nil {
		return config, err
	}
	if d.Platform == nil || *d.Platform != config.platform {
		return config, fmt.Errorf("manifest %s is for %v, its configuration for %v", d.Digest, d.Platform,
			config.platform)
	}
	if len(m.Layers) != len(config.RootFS.DiffIDs) {
		return config, fmt.Errorf("manifest %s has %d layers, its configuration %d", d.Digest, len(m.Layers),
			len(config.RootFS.DiffIDs))
	}
	for i, layer := range m.Layers {
		if err := r.layer(config.Architecture, layer, config.RootFS.DiffIDs[i]); err != nil {
			return config, fmt.Errorf("cannot read layer %s: %w", layer.Digest, err)
		}
	}
	return config, nil
}

// layer visits the files in a layer, and verifies the digest of the uncompressed layer. The tar reader stops at the
// end-of-archive marker, but the digest covers all bytes, so layer also reads the rest.
func (r *reader) layer(architecture string, d descriptor, diffID string) error {
	section, err := r.open(d)
	if err != nil {
		return err
	}
	var content io.Reader = section
	if d.MediaType == typeGzip {
		if content, err = gzip.NewReader(content); err != nil {
			return err
		}
	}
	m := newMeter(io.Discard)
	content = io.TeeReader(content, m)
	archive := tar.NewReader(content)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if h.FileInfo().Mode().Type() != fs.FileMode(0) {
			continue
		}
		if err := r.visit(architecture, "/"+h.Name, archive); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, content); err != nil { // read the padding at the end
		return err
	}
	if m.digest() != diffID {
		return fmt.Errorf("it unpacks to %s, its configuration says %s", m.digest(), diffID)
	}
	return nil
}
