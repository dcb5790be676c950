package release

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/e2e/image"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// Report describes a verified release. If no key was given, Signed is false, and the information in the report, which
// comes from the files, has not been authenticated.
type Report struct {
	Version, Commit, Registry string
	// Signed is true if the checksums and the provenance are signed with the key.
	Signed  bool
	Builder string
	Files   int
}

// Verify checks that the files in a release are consistent with each other and, if key is not nil, with the signature
// and the provenance. If version is not empty, the release must have this version; otherwise, an older release would
// also be accepted, because its signature is valid, too. Verify does not need network access, and returns all
// independent problems. The order of the checks makes Verify safe: the signature covers SHA256SUMS, which contains the
// digests of all files, and files are parsed only after that. The directory must contain all files in the release and
// no others. Without a key, Verify detects corruption and mistakes, but not forgery.
func Verify(dir, version string, key *ecdsa.PublicKey) (Report, error) {
	v := verifier{dir: dir, key: key}
	report, err := v.run(version)
	if err != nil {
		return Report{}, fmt.Errorf("cannot verify the release in %s: %w", dir, err)
	}
	return report, nil
}

type verifier struct {
	dir string
	key *ecdsa.PublicKey
	Report
}

// run checks a release in order of trust: first the signature, then the files that the signature covers, and then the
// references between them.
func (v *verifier) run(version string) (Report, error) {
	// A file's content is used only after the file has been compared with its signed checksum.
	sums, err := v.checksums()
	if err != nil {
		return Report{}, err
	}
	v.Files = len(sums)
	if err := v.names(sums, version); err != nil {
		return Report{}, err
	}
	found, summaries, err := v.images()
	if err != nil {
		return Report{}, err
	}
	var problems []error
	if v.key != nil {
		problems = append(problems, v.provenance(sums))
	}
	for _, architecture := range Architectures() {
		problems = append(problems, v.binaries(architecture, found[architecture]))
	}
	problems = append(problems, v.imageList(summaries), v.chart(), v.manifests())
	return v.Report, errors.Join(problems...)
}

func (v *verifier) read(name string) ([]byte, error) { return os.ReadFile(filepath.Join(v.dir, name)) }

// checksums verifies the list of checksums and the files listed in it.
func (v *verifier) checksums() (map[string]string, error) {
	list, err := v.read(sumsName)
	if err != nil {
		return nil, err
	}
	if v.key != nil {
		signature, err := v.read(signatureName)
		if err != nil {
			return nil, err
		}
		if err := checkSignature(v.key, list, strings.TrimSpace(string(signature))); err != nil {
			return nil, fmt.Errorf("%s: %w", signatureName, err)
		}
		v.Signed = true
	}
	want, err := parseSums(string(list))
	if err != nil {
		return nil, err
	}
	got, err := sumFolder(v.dir)
	if err != nil {
		return nil, err
	}
	return want, compareSums(want, got, sumsName)
}

// names extracts the version from the file names, and verifies that the files are exactly the files of a release with
// this version. The version is part of file names that are signed, so this check does not have to trust the content of
// any file.
func (v *verifier) names(sums map[string]string, wanted string) error {
	prefix, suffix, _ := strings.Cut(imageFile(stack.Controller, "\n"), "\n")
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if version, ok := strings.CutPrefix(name, prefix); ok && strings.HasSuffix(version, suffix) {
			v.Version = strings.TrimSuffix(version, suffix)
		}
	}
	if !versionPattern.MatchString(v.Version) {
		return fmt.Errorf("the image %s is missing", imageFile(stack.Controller, "VERSION"))
	}
	if wanted != "" && v.Version != wanted {
		return fmt.Errorf("these are the files of %s, not of %s: get those", v.Version, wanted)
	}
	var problems []error
	names := contents(v.Version)
	for _, name := range names {
		if _, ok := sums[name]; !ok {
			problems = append(problems, fmt.Errorf("%s is missing", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if !slices.Contains(names, name) {
			problems = append(problems, fmt.Errorf("%s is not a file of release %s", name, v.Version))
		}
	}
	return errors.Join(problems...)
}

// contents returns the names of the files in a release with the given version, except the files that describe the
// others.
func contents(version string) []string {
	names := []string{imageList, chartFile(version), manifestsName(version, "-crds"), manifestsName(version, "")}
	for _, name := range imageNames() {
		names = append(names, imageFile(name, version))
	}
	for _, architecture := range Architectures() {
		names = append(names, archiveName(chartName, version, architecture)+archiveSuffix,
			archiveName(stack.CommandLine, version, architecture)+archiveSuffix, sbomName(version, architecture))
	}
	return names
}

// images verifies the images, and reads the commit and the registry from them. The first image determines both, and all
// other images must match. The programs in the images also contain the commit (see binaries).
func (v *verifier) images() (map[string]map[string]binary, []image.Summary, error) {
	found, summaries, err := readImages(v.dir, v.Version)
	if err != nil {
		return nil, nil, err
	}
	var problems []error
	for i, name := range imageNames() {
		registry, ok := strings.CutSuffix(summaries[i].Ref, "/"+name+":"+v.Version)
		if v.Registry == "" {
			v.Registry = registry
		}
		if !ok || registry != v.Registry {
			problems = append(problems, fmt.Errorf("image %s is named %q", name, summaries[i].Ref))
		}
		for _, architecture := range Architectures() {
			labels := summaries[i].Labels[architecture]
			commit := labels["org.opencontainers.image.revision"]
			if v.Commit == "" {
				v.Commit = commit
			}
			if commit == "" || commit != v.Commit || labels["org.opencontainers.image.version"] != v.Version {
				problems = append(problems, fmt.Errorf("image %s for %s has labels %v", name, architecture, labels))
			}
		}
	}
	return found, summaries, errors.Join(problems...)
}

// binaries verifies that the programs have the expected version and commit, are identical in images and archives, and
// match the SBOM. It does not parse the SBOM; instead, it generates the SBOM again from the binaries and compares the
// files.
func (v *verifier) binaries(architecture string, found map[string]binary) error {
	var problems []error
	programs := append(stack.Contents(stack.Driver), stack.Contents(stack.Controller)...)
	for _, name := range programs {
		program, ok := found[name]
		if !ok {
			problems = append(problems, fmt.Errorf("no image for %s has %s", architecture, name))
			continue
		}
		err := checkVersion(program.info, v.Version, v.Commit)
		if got := setting(program.info, "GOARCH"); err == nil && got != architecture {
			err = fmt.Errorf("it is for %s", got)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("program %s for %s: %w", name, architecture, err))
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	problems = append(problems, v.archive(chartName, architecture, programs, found),
		v.archive(stack.CommandLine, architecture, []string{stack.CommandLine}, found))
	want, err := newSBOM(v.Version, v.Commit, architecture, found)
	if err != nil {
		return err
	}
	name := sbomName(v.Version, architecture)
	got, err := v.read(name)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s does not list what the binaries are made of", name)
	}
	return errors.Join(append(problems, err)...)
}

// archive verifies that an archive contains exactly the programs in the images and the license.
func (v *verifier) archive(name, architecture string, programs []string, found map[string]binary) error {
	folder := archiveName(name, v.Version, architecture)
	missing := map[string]bool{folder + "/" + licence: true}
	for _, program := range programs {
		missing[folder+"/"+program] = true
	}
	err := readArchive(filepath.Join(v.dir, folder+archiveSuffix), func(name string, content []byte) error {
		if !missing[name] {
			return errors.New("unexpected or duplicate file")
		}
		delete(missing, name)
		if program := path.Base(name); program != licence && digestOf(content) != found[program].digest {
			return errors.New("it is another file than in the images")
		}
		return nil
	})
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("it lacks %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	if err != nil {
		return fmt.Errorf("archive %s: %w", folder, err)
	}
	return nil
}

// imageList checks that the list from which users copy image digests matches the images in the archives.
func (v *verifier) imageList(summaries []image.Summary) error {
	var want strings.Builder
	for i, name := range imageNames() {
		want.WriteString(imageLine(name, v.Version, summaries[i]))
	}
	got, err := v.read(imageList)
	if err == nil && string(got) != want.String() {
		err = fmt.Errorf("%s has other digests than the images", imageList)
	}
	return err
}

// chart verifies that the chart has the release's version and installs the release's images.
func (v *verifier) chart() error {
	var chart struct{ Name, Version, AppVersion string }
	type part struct {
		Image struct{ Repository, Tag, Digest string }
	}
	var values struct{ Node, Controller part }
	file := chartFile(v.Version)
	err := readArchive(filepath.Join(v.dir, file), func(name string, content []byte) error {
		switch name {
		case chartName + "/Chart.yaml":
			return yaml.Unmarshal(content, &chart)
		case chartName + "/values.yaml":
			return yaml.Unmarshal(content, &values)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if chart.Name != chartName || chart.Version != chartVersion(v.Version) || chart.AppVersion != v.Version {
		return fmt.Errorf("%s is chart %s %s of version %s", file, chart.Name, chart.Version, chart.AppVersion)
	}
	for name, part := range map[string]part{stack.Driver: values.Node, stack.Controller: values.Controller} {
		if i := part.Image; i.Repository != v.Registry+"/"+name || i.Tag != "" || i.Digest != "" {
			return fmt.Errorf("%s installs the image %+v, which is not part of the release", file, i)
		}
	}
	return nil
}

// manifests verifies that the manifests for "kubectl apply" install the images with the release's version.
func (v *verifier) manifests() error {
	name := manifestsName(v.Version, "")
	text, err := v.read(name)
	if err != nil {
		return err
	}
	for _, program := range []string{stack.Driver, stack.Controller} {
		if want := "image: " + v.Registry + "/" + program + ":" + v.Version +
			"\n"; !bytes.Contains(text, []byte(want)) {
			return fmt.Errorf("%s does not install the %q of the release", name, strings.TrimSpace(want))
		}
	}
	return nil
}

// provenance verifies the signed statement that exactly these files were built from this commit. The same key is used
// to sign many releases, so the statement must name these files, this version and this commit.
func (v *verifier) provenance(sums map[string]string) error {
	data, err := v.read(provenanceName)
	if err != nil {
		return err
	}
	payload, err := open(v.key, data)
	if err != nil {
		return fmt.Errorf("%s: %w", provenanceName, err)
	}
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil {
		return fmt.Errorf("cannot decode %s: %w", provenanceName, err)
	}
	if s.Type != statementType || s.PredicateType != predicateType || s.Predicate.Build.Type != buildType {
		return fmt.Errorf("%s is a %q of %q by %q", provenanceName, s.Type, s.PredicateType, s.Predicate.Build.Type)
	}
	subjects := map[string]string{}
	for _, subject := range s.Subject {
		subjects[subject.Name] = subject.Digest["sha256"]
	}
	if err := compareSums(subjects, sums, provenanceName); err != nil {
		return err
	}
	v.Builder = s.Predicate.Run.Builder.ID
	build := s.Predicate.Build
	if build.External["version"] != v.Version || build.External["registry"] != v.Registry ||
		len(build.Dependencies) != 1 || build.Dependencies[0].Digest["gitCommit"] != v.Commit {
		return fmt.Errorf("%s is of another build: %v of %v", provenanceName, build.External, build.Dependencies)
	}
	return nil
}
