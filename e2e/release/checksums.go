package release

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names of the files that describe the other files.
const (
	sumsName       = "SHA256SUMS"
	signatureName  = "SHA256SUMS.sig"
	provenanceName = "provenance.intoto.json"
)

// sumFolder returns the SHA-256 checksum of each file in a release, except the files that describe the others.
func sumFolder(dir string) (map[string]string, error) {
	names, err := fileNames(dir)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, name := range names {
		if name == sumsName || name == signatureName || name == provenanceName {
			continue
		}
		if sums[name], err = sumFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// sumFile returns the SHA-256 checksum of a file. It reads the file in chunks, because image archives are 100 MB or
// larger.
func sumFile(path string) (sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// formatSums formats checksums in the format of sha256sum.
func formatSums(sums map[string]string) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		text.WriteString(sums[name] + "  " + name + "\n")
	}
	return text.String()
}

// compareSums returns an error that lists each file that differs, is missing, or is unexpected. says describes the
// source of the expected checksums in the messages.
func compareSums(want, got map[string]string, says string) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch sum, ok := got[name]; {
		case !ok:
			problems = append(problems, fmt.Errorf("%s is missing, but %s has it", name, says))
		case sum != want[name]:
			problems = append(problems, fmt.Errorf("%s has SHA-256 %s, but %s says %s", name, sum, says, want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			problems = append(problems, fmt.Errorf("%s exists, but %s does not list it", name, says))
		}
	}
	return errors.Join(problems...)
}

// parseSums strictly parses the output of formatSums. File names must not contain a directory. parseSums rejects any
// text that formatSums would write differently, so that two different texts never have the same meaning and everything
// that is signed is checked.
func parseSums(text string) (map[string]string, error) {
	sums := map[string]string{}
	for line := range strings.Lines(text) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || len(sum) != hex.EncodedLen(sha256.Size) || name != filepath.Base(name) || !isClean(name) {
			return nil, fmt.Errorf("cannot read %s: the line %q is not a checksum of a file", sumsName, line)
		}
		sums[name] = sum
	}
	if formatSums(sums) != text {
		return nil, fmt.Errorf("cannot read %s: it is not sorted, or names a file twice", sumsName)
	}
	return sums, nil
}
