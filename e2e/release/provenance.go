package release

import (
	"encoding/json"
	"maps"
	"slices"
)

// Provenance types: in-toto's attestation framework and SLSA's provenance, both version 1.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = Repository + "/blob/main/docs/release.md#make-release"
)

// ByHand is the builder URI for a release that was built manually on a personal machine.
const ByHand = Repository + "/blob/main/docs/release.md#built-by-hand"

type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     predicate `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

type predicate struct {
	Build buildDefinition `json:"buildDefinition"`
	Run   runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	Type         string            `json:"buildType"`
	External     map[string]string `json:"externalParameters"`
	Internal     map[string]string `json:"internalParameters"`
	Dependencies []material        `json:"resolvedDependencies"`
}

type material struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest,omitempty"`
}

type runDetails struct {
	Builder struct {
		ID string `json:"id"`
	} `json:"builder"`
}

// newProvenance describes the source, the procedure and the builder of the files with the given checksums. It omits
// times, which would be the only difference between runs. The subjects are all files in SHA256SUMS. The parameters are
// sufficient to reproduce the release, which is the purpose of externalParameters (SLSA provenance, "buildDefinition").
func newProvenance(o Options, source Source, goVersion string, sums map[string]string) ([]byte, error) {
	s := statement{Type: statementType, PredicateType: predicateType}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s.Subject = append(s.Subject, subject{Name: name, Digest: map[string]string{"sha256": sums[name]}})
	}
	s.Predicate.Build = buildDefinition{
		Type:     buildType,
		External: map[string]string{"version": source.Version, "registry": o.Registry},
		Internal: map[string]string{"go": goVersion},
		Dependencies: []material{{URI: "git+" + Repository + "@refs/tags/" + source.Version,
			Digest: map[string]string{"gitCommit": source.Commit}}},
	}
	s.Predicate.Run.Builder.ID = o.Builder
	return json.Marshal(s)
}
