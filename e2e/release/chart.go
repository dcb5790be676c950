package release

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// sourceRegistry is the image registry in the repository's manifests.
const sourceRegistry = "localhost"

const (
	chartName = "dra-network-driver"
	crdFolder = "crds"
)

// registryPattern matches a registry with or without a path. The value is inserted into image names and unquoted YAML,
// so it must not contain special characters.
var registryPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d+)?(/[a-z0-9]+([._-][a-z0-9]+)*)*$`)

// chartVersion returns the version of the chart, which Helm expects without the leading v.
func chartVersion(version string) string { return strings.TrimPrefix(version, "v") }

func chartFile(version string) string { return chartName + "-" + chartVersion(version) + ".tgz" }

// writeChart packs the chart in the same way as Helm. The release version becomes the chart's version and the tag for
// the images, which are in registry. It does not need Helm: a packed chart is an archive with one directory, which is
// named after the chart. Helm rejects a chart whose version is not a semantic version.
func (s Source) writeChart(dir, registry string) error {
	root := s.path("deploy", "chart")
	var items []item
	if err := addFolder(&items, root, chartName); err != nil {
		return fmt.Errorf("cannot pack the chart: %w", err)
	}
	for i := range items {
		content, err := os.ReadFile(items[i].source)
		if err != nil {
			return fmt.Errorf("cannot pack the chart: %w", err)
		}
		switch items[i].name {
		case chartName + "/Chart.yaml":
			content, err = replaceAll(content, map[string]string{
				`(?m)^version: .*$`:    "version: " + chartVersion(s.Version),
				`(?m)^appVersion: .*$`: "appVersion: " + s.Version,
			})
		case chartName + "/values.yaml":
			content, err = replaceAll(content, map[string]string{
				`repository: ` + sourceRegistry + `/(\S+)( +#.*)?`: "repository: " + registry + "/$1"})
		}
		if err != nil {
			return fmt.Errorf("cannot pack %s: %w", items[i].name, err)
		}
		items[i].content, items[i].source = content, ""
	}
	return writeArchive(filepath.Join(dir, chartFile(s.Version)), s.Time, items)
}

// addFolder adds the files below dir. It follows symbolic links, because the chart contains a link to the custom
// resource definitions, and a link to a target outside the archive would be broken. The order does not matter, because
// writeArchive sorts the files.
func addFolder(items *[]item, dir, name string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		source := filepath.Join(dir, entry.Name())
		info, err := os.Stat(source)
		if err != nil {
			return err
		}
		if info.IsDir() {
			if err := addFolder(items, source, name+"/"+entry.Name()); err != nil {
				return err
			}
			continue
		}
		*items = append(*items, item{name: name + "/" + entry.Name(), source: source, mode: 0o644})
	}
	return nil
}

// replaceAll replaces patterns. It returns an error if a pattern is not found, because this means that the files have
// changed and the release would still refer to images from the working tree.
func replaceAll(content []byte, replacements map[string]string) ([]byte, error) {
	for pattern, replacement := range replacements {
		expression := regexp.MustCompile(pattern)
		if !expression.Match(content) {
			return nil, fmt.Errorf("there is no %s", pattern)
		}
		content = expression.ReplaceAll(content, []byte(replacement))
	}
	return content, nil
}

// writeManifests writes the manifests for an installation without Helm: one file with the custom resource definitions,
// and one with everything else. The definitions are separate because they must be established before objects of their
// kinds can be applied. The objects are in the same order as in kustomization.yaml.
func (s Source) writeManifests(dir, registry string) error {
	data, err := os.ReadFile(s.path("deploy", "kustomization.yaml"))
	if err != nil {
		return err
	}
	var list struct{ Resources []string }
	if err := yaml.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("cannot decode deploy/kustomization.yaml: %w", err)
	}
	var definitions, objects strings.Builder
	for _, name := range list.Resources {
		text, err := os.ReadFile(s.path("deploy", name))
		if err != nil {
			return err
		}
		out := &objects
		if strings.HasPrefix(name, crdFolder+"/") {
			out = &definitions
		}
		out.WriteString("---\n" + strings.TrimPrefix(string(text), "---\n"))
	}
	text, err := replaceAll([]byte(objects.String()), map[string]string{
		`image: ` + sourceRegistry + `/(\S+):` + stack.DefaultTag + `\b`: "image: " + registry + "/$1:" + s.Version})
	if err != nil {
		return fmt.Errorf("cannot write the manifests: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, manifestsName(s.Version, "-crds")), []byte(definitions.String()), 0o644),
		os.WriteFile(filepath.Join(dir, manifestsName(s.Version, "")), text, 0o644))
}

func manifestsName(version, part string) string { return chartName + part + "_" + version + ".yaml" }
