// Program serveversions adds served versions to the CRDs that controller-gen generates from the stored version's types.
// Each added version is a copy of the stored version under another name.
package main

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := rewrite(path); err != nil {
			fmt.Fprintln(os.Stderr, "serveversions:", err)
			os.Exit(1)
		}
	}
}

// rewrite adds the versions to the definition in a file.
func rewrite(path string) error {
	made, err := os.ReadFile(path) //nolint:gosec // the user passes the path
	if err != nil {
		return err
	}
	var names []string
	for _, gv := range v1alpha1.ServedVersions()[1:] {
		names = append(names, gv.Version)
	}
	served, err := serve(made, names)
	if err != nil {
		return fmt.Errorf("cannot add versions to %s: %w; generate it from the types with controller-gen "+
			"first", path, err)
	}
	return os.WriteFile(path, served, 0o644) //nolint:gosec // the repository is public
}

// serve returns the definition with copies of its only version, which are served under additional names. Apart from
// their names, the copies differ from the original only in that they are not stored, so the API server converts objects
// by changing just apiVersion (strategy None).
func serve(definition []byte, names []string) ([]byte, error) {
	var content map[string]any
	if err := yaml.UnmarshalStrict(definition, &content); err != nil {
		return nil, err
	}
	spec, _ := content["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	if len(versions) != 1 {
		return nil, fmt.Errorf("it has %d versions, want 1", len(versions))
	}
	stored, isObject := versions[0].(map[string]any)
	if !isObject || stored["served"] != true || stored["storage"] != true {
		return nil, errors.New("its version is not served and stored")
	}
	for _, name := range names {
		version := runtime.DeepCopyJSON(stored)
		version["name"], version["storage"] = name, false
		versions = append(versions, version)
	}
	spec["versions"] = versions
	spec["conversion"] = map[string]any{"strategy": "None"}
	made, err := yaml.Marshal(content)
	if err != nil {
		return nil, err
	}
	return append([]byte("---\n"), made...), nil
}
