package release

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// Options specifies the release to create.
type Options struct {
	// Clone is the path of the project's clone, whose checked-out commit is released.
	Clone string
	// Version is a version such as v0.1.0.
	Version string
	// Registry is the registry where the images will be published, such as registry.example/team.
	Registry string
	// Out is the directory to create for the release files.
	Out string
	// Key signs the checksums and the provenance. Without it, the release has neither a signature nor a provenance.
	Key *ecdsa.PrivateKey
	// Builder is the builder's URI; empty means ByHand.
	Builder string
	// Progress receives progress messages; may be nil.
	Progress io.Writer
}

// Make writes the files in a release to a directory, which appears only once it is complete. The temporary directory
// has the same parent as Out, so that it can be renamed. Make needs git, Go, and the modules that the commit requires;
// it uses the network only for modules that are not in Go's cache. The same input always results in the same bytes.
func Make(ctx context.Context, o Options) error {
	if err := makeRelease(ctx, o); err != nil {
		return fmt.Errorf("cannot make release %s: %w", o.Version, err)
	}
	return nil
}

// makeRelease checks the options up front, because a build takes minutes.
func makeRelease(ctx context.Context, o Options) error {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Builder == "" {
		o.Builder = ByHand
	}
	if !registryPattern.MatchString(o.Registry) {
		return fmt.Errorf("%q is not a registry: use the form registry.example/team", o.Registry)
	}
	var err error // paths must be absolute, since commands are run in other directories
	if o.Out, err = filepath.Abs(o.Out); err != nil {
		return err
	}
	if o.Clone, err = filepath.Abs(o.Clone); err != nil {
		return err
	}
	if _, err := os.Stat(o.Out); !errors.Is(err, os.ErrNotExist) {
		return orElse(err, o.Out+" is there already: remove it first")
	}
	if err := os.MkdirAll(filepath.Dir(o.Out), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(o.Out), ".release-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // the results have been moved out of it
	m := maker{Options: o, files: filepath.Join(work, "files"), work: work}
	if err := os.Mkdir(m.files, 0o755); err != nil {
		return err
	}
	if m.source, err = Checkout(ctx, o.Clone, o.Version, filepath.Join(work, "source")); err != nil {
		return err
	}
	if err := m.run(ctx); err != nil {
		return err
	}
	return os.Rename(m.files, o.Out)
}

// maker creates one release. files is the directory that becomes Out, and work is the temporary directory with the
// source and the binaries.
type maker struct {
	Options
	source      Source
	files, work string
}

// run creates the files in a release in dependency order. Checksums and signatures come last, because they cover all
// other files.
func (m maker) run(ctx context.Context) error {
	for _, architecture := range Architectures() {
		m.printf("building for linux/%s", architecture)
		if err := m.source.build(ctx, architecture, m.programs(architecture), m.plugins(architecture)); err != nil {
			return err
		}
		if err := m.writeArchives(architecture); err != nil {
			return err
		}
	}
	m.printf("packing images, chart and manifests")
	if err := m.writeImages(); err != nil {
		return err
	}
	if err := errors.Join(m.source.writeChart(m.files, m.Registry), m.source.writeManifests(m.files, m.Registry)); err != nil {
		return err
	}
	m.printf("listing what everything is made of")
	for _, architecture := range Architectures() {
		if err := m.writeSBOM(architecture); err != nil {
			return err
		}
	}
	return m.seal()
}

func (m maker) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(m.Progress, format+"\n", args...)
}

func (m maker) programs(architecture string) string {
	return filepath.Join(m.work, "bin", architecture)
}
func (m maker) plugins(architecture string) string { return filepath.Join(m.work, "cni", architecture) }

const (
	archiveSuffix = ".tar.gz"
	licence       = "LICENSE"
)

// archiveName returns the name of an archive without its extension, which is also the name of the directory in it.
func archiveName(program, version, architecture string) string {
	return program + "_" + version + "_linux_" + architecture
}

func sbomName(version, architecture string) string {
	return archiveName("sbom", version, architecture) + ".cdx.json"
}

// writeArchives writes one archive with all programs, and one with the command-line tools for a workstation.
func (m maker) writeArchives(architecture string) error {
	dir := m.programs(architecture)
	all, err := fileNames(dir)
	if err != nil {
		return err
	}
	for archive, programs := range map[string][]string{chartName: all, stack.CommandLine: {stack.CommandLine}} {
		name := archiveName(archive, m.Version, architecture)
		items := []item{{name: name + "/" + licence, source: m.source.path(licence), mode: 0o644}}
		for _, program := range programs {
			items = append(items, item{name: name + "/" + program, source: filepath.Join(dir, program), mode: 0o755})
		}
		if err := writeArchive(filepath.Join(m.files, name+archiveSuffix), m.source.Time, items); err != nil {
			return fmt.Errorf("cannot write %s: %w", name, err)
		}
	}
	return nil
}

// writeSBOM writes the list of components in the binaries for one architecture. It gets them from the binaries instead
// of go.mod, because some modules in go.mod are not part of any program.
func (m maker) writeSBOM(architecture string) error {
	binaries := map[string]binary{}
	for _, dir := range []string{m.programs(architecture), m.plugins(architecture)} {
		names, err := fileNames(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			if binaries[name], err = newBinary(content); err != nil {
				return fmt.Errorf("cannot read what %s is made of: %w", name, err)
			}
		}
	}
	data, err := newSBOM(m.Version, m.source.Commit, architecture, binaries)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.files, sbomName(m.Version, architecture)), data, 0o644)
}

// seal writes the checksums of all files, and signs the checksums and the provenance. It writes the signature and the
// provenance last, when the other files no longer change. SHA256SUMS does not list these two files, because they depend
// on it.
func (m maker) seal() error {
	sums, err := sumFolder(m.files)
	if err != nil {
		return err
	}
	list := []byte(formatSums(sums))
	if err := os.WriteFile(filepath.Join(m.files, sumsName), list, 0o644); err != nil {
		return err
	}
	if m.Key == nil {
		m.printf("not signed: no key given")
		return nil
	}
	// Record the Go version that built the programs, which go.mod may select, instead of the version that built this
	// command.
	built, err := buildinfo.ReadFile(filepath.Join(m.programs(Architectures()[0]), stack.Driver))
	if err != nil {
		return fmt.Errorf("cannot read the version of Go: %w", err)
	}
	provenance, err := newProvenance(m.Options, m.source, built.GoVersion, sums)
	if err != nil {
		return err
	}
	sealed, err := seal(m.Key, provenance)
	if err != nil {
		return fmt.Errorf("cannot sign the provenance: %w", err)
	}
	signature, err := sign(m.Key, list)
	if err != nil {
		return fmt.Errorf("cannot sign the checksums: %w", err)
	}
	return errors.Join(os.WriteFile(filepath.Join(m.files, provenanceName), sealed, 0o644),
		os.WriteFile(filepath.Join(m.files, signatureName), []byte(signature+"\n"), 0o644))
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
