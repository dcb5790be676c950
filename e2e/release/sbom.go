package release

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
)

// binary is a program or a CNI plugin in a release.
type binary struct {
	digest string // sha256, in hexadecimal
	info   *debug.BuildInfo
}

// bom is a software bill of materials in CycloneDX 1.6 format. The fields are in the same order as in the file.
// Functions that fill in lists also sort them.
type bom struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     bomMetadata  `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type bomMetadata struct {
	Component  component  `json:"component"`
	Properties []property `json:"properties"`
}

type component struct {
	Ref     string    `json:"bom-ref"`
	Type    string    `json:"type"`
	Name    string    `json:"name"`
	Version string    `json:"version,omitempty"`
	PURL    string    `json:"purl,omitempty"`
	Hashes  []bomHash `json:"hashes,omitempty"`
}

type bomHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// newSBOM lists the components in the binaries for one architecture: the modules that Go has recorded in each binary,
// with their checksums from go.sum, and the standard library. The SBOM contains neither a serial number nor a time, so
// the same binaries result in the same SBOM, and anyone who has the binaries can reproduce it.
func newSBOM(version, commit, architecture string, binaries map[string]binary) ([]byte, error) {
	release := component{Ref: "release", Type: "application", Name: chartName, Version: version}
	document := bom{Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6",
		Version: 1, Metadata: bomMetadata{Component: release, Properties: []property{
			{"dra-network:architecture", architecture}, {"dra-network:commit", commit}}}}
	libraries := map[string]component{}
	top := dependency{Ref: release.Ref}
	for _, name := range slices.Sorted(maps.Keys(binaries)) {
		b := binaries[name]
		program := component{Ref: "file:" + name, Type: "application", Name: name, Version: b.info.Main.Version,
			Hashes: []bomHash{{"SHA-256", b.digest}}}
		document.Components = append(document.Components, program)
		top.DependsOn = append(top.DependsOn, program.Ref)
		needs := dependency{Ref: program.Ref}
		for _, library := range librariesOf(b.info) {
			libraries[library.Ref] = library
			needs.DependsOn = append(needs.DependsOn, library.Ref)
		}
		slices.Sort(needs.DependsOn)
		document.Dependencies = append(document.Dependencies, needs)
	}
	document.Dependencies = append([]dependency{top}, document.Dependencies...)
	document.Components = append(document.Components, slices.SortedFunc(maps.Values(libraries),
		func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })...)
	data, err := json.MarshalIndent(document, "", " ")
	return append(data, '\n'), err
}

// librariesOf returns the modules whose code a binary contains, and the standard library. For a replaced module, it
// returns the replacement, because the replacement was compiled.
func librariesOf(info *debug.BuildInfo) []component {
	found := []component{moduleComponent("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	modules := info.Deps
	if strings.HasPrefix(info.Path, pluginModule+"/") {
		modules = append(slices.Clone(modules), &info.Main) // a plugin's main package is in a dependency of e2e/tools
	}
	for _, module := range modules {
		if module.Replace != nil {
			module = module.Replace
		}
		found = append(found, moduleComponent(module.Path, module.Version, module.Sum))
	}
	return found
}

// moduleComponent describes a Go module. The checksum in go.sum, "h1:" followed by base64, is the SHA-256 of the
// module's file list. If the checksum is missing, as for the standard library, or cannot be decoded, the component has
// no hash.
func moduleComponent(path, version, sum string) component {
	url := "pkg:golang/" + path + "@" + version
	c := component{Ref: url, Type: "library", Name: path, Version: version, PURL: url}
	if encoded, ok := strings.CutPrefix(sum, "h1:"); ok {
		if digest, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			c.Hashes = []bomHash{{"SHA-256", hex.EncodeToString(digest)}}
		}
	}
	return c
}
