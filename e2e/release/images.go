package release

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/e2e/image"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// pluginFolder is the plugin directory in the image with plugins, which the chart uses if cniPlugins.included is set.
const pluginFolder = "/opt/cni/included"

// withPlugins is the name of the driver image that includes CNI plugins.
const withPlugins = stack.Driver + "-with-plugins"

// imageList is the name of the file with one line for each image: its name with its digest, and its archive.
const imageList = "images.txt"

func imageNames() []string { return []string{stack.Controller, stack.Driver, withPlugins} }

func imageFile(name, version string) string { return name + "_" + version + ".oci.tar" }

// writeImages packs each image for all architectures, and lists the images with their digests. It reads the digests
// from the finished archives, using the same code that verifies them.
func (m maker) writeImages() error {
	var list strings.Builder
	for _, name := range imageNames() {
		file := filepath.Join(m.files, imageFile(name, m.Version))
		var specs []image.Spec
		for _, architecture := range Architectures() {
			spec, err := m.image(name, architecture)
			if err != nil {
				return err
			}
			specs = append(specs, spec)
		}
		if err := image.Write(file, specs...); err != nil {
			return err
		}
		if err := os.Chmod(file, 0o644); err != nil { // readable by all users, like all other published files
			return err
		}
		summary, err := image.Read(file, func(string, string, io.Reader) error { return nil })
		if err != nil {
			return err
		}
		list.WriteString(imageLine(name, m.Version, summary))
	}
	return os.WriteFile(filepath.Join(m.files, imageList), []byte(list.String()), 0o644)
}

func imageLine(name, version string, summary image.Summary) string {
	return summary.Ref + "@" + summary.Digest + " " + imageFile(name, version) + "\n"
}

// image returns the spec for an image for one architecture. The images with and without plugins contain the same
// program, so the suffix is removed from the name to find it.
func (m maker) image(name, architecture string) (image.Spec, error) {
	program := strings.TrimSuffix(name, strings.TrimPrefix(withPlugins, stack.Driver))
	spec := stack.Image(program, m.programs(architecture), m.Registry+"/"+name+":"+m.Version)
	spec.Architecture, spec.Compressed, spec.Labels = architecture, true, m.labels()
	if name != withPlugins {
		return spec, nil
	}
	plugins, err := fileNames(m.plugins(architecture))
	for _, plugin := range plugins {
		spec.Files = append(spec.Files, image.File{Path: pluginFolder + "/" + plugin,
			Source: filepath.Join(m.plugins(architecture), plugin)})
	}
	return spec, err
}

// labels returns the labels for all images, under the annotation keys that the OCI image specification defines. The
// time is the commit time, as for all files in a release.
func (m maker) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.created":  m.source.Time.Format("2006-01-02T15:04:05Z"),
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.revision": m.source.Commit,
		"org.opencontainers.image.source":   Repository,
		"org.opencontainers.image.version":  m.Version,
	}
}

func newBinary(content []byte) (binary, error) {
	info, err := buildinfo.Read(bytes.NewReader(content))
	return binary{digest: digestOf(content), info: info}, err
}

// readImages verifies the images and returns the binaries that they contain, by architecture and name. A binary must be
// identical in all images that contain it. Binaries are identified by their base names, so two different binaries must
// not have the same name.
func readImages(dir, version string) (map[string]map[string]binary, []image.Summary, error) {
	found := map[string]map[string]binary{}
	var summaries []image.Summary
	for _, name := range imageNames() {
		summary, err := image.Read(filepath.Join(dir, imageFile(name, version)),
			func(architecture, file string, content io.Reader) error {
				if found[architecture] == nil {
					found[architecture] = map[string]binary{}
				}
				return addBinary(found[architecture], path.Base(file), content)
			})
		if err != nil {
			return nil, nil, err
		}
		summaries = append(summaries, summary)
	}
	for architecture := range found {
		if !slices.Contains(Architectures(), architecture) {
			return nil, nil, fmt.Errorf("images are for %s, which the release is not for", architecture)
		}
	}
	return found, summaries, nil
}

// addBinary records a binary from an image. It returns an error if another binary has the same name but different
// content, because the SBOM would then describe only one of them.
func addBinary(found map[string]binary, name string, content io.Reader) error {
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if known, again := found[name]; again {
		if known.digest != digestOf(data) {
			return fmt.Errorf("%s is another file than in another image", name)
		}
		return nil
	}
	found[name], err = newBinary(data)
	return err
}
