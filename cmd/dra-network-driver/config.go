package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// applyFile sets flags from a file, unless they are set on the command line. The file is a YAML map from flag names to
// strings, numbers, booleans or lists of strings. An unknown key is an error, because silently ignoring it would be
// worse.
//
// It must be called after the command line is parsed, since parsing marks flags as changed. Names are processed in
// sorted order, so that the reported error is deterministic.
func applyFile(flags *pflag.FlagSet, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read --config: %w", err)
	}
	settings := map[string]any{}
	if err := yaml.UnmarshalStrict(content, &settings); err != nil {
		return fmt.Errorf("cannot parse --config %s: %w; write a YAML map of flag names to values, each name once",
			path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		flag := flags.Lookup(name)
		if flag == nil || name == configFlag || isOfCobra(name) {
			return fmt.Errorf("cannot apply --config %s: unknown setting %q; settings have the names of flags, see "+
				"--help", path, name)
		}
		// The command line takes precedence: to try a setting, an administrator adds a flag without changing the file
		// that all nodes share.
		if flag.Changed {
			continue
		}
		value, err := asText(settings[name])
		if err == nil {
			err = flags.Set(name, value)
		}
		if err != nil {
			return fmt.Errorf("cannot apply --config %s: %s: %w", path, name, err)
		}
	}
	return nil
}

// asText formats a value for the command line. Lists are joined with commas, at which pflag splits them again, so an
// element cannot contain a comma.
func asText(value any) (string, error) {
	switch value := value.(type) {
	case string, bool, int64, float64:
		return fmt.Sprint(value), nil
	case []any:
		parts := make([]string, len(value))
		for i := range value {
			part, ok := value[i].(string)
			if !ok {
				return "", fmt.Errorf("%v is not a string", value[i])
			}
			parts[i] = part
		}
		return strings.Join(parts, ","), nil
	}
	return "", fmt.Errorf("%v is not a string, a number, a boolean or a list of strings", value)
}

// isOfCobra reports whether the flag is one that cobra adds to every command and handles before a file is read.
func isOfCobra(name string) bool { return name == "help" || name == "version" }

// settings returns all flags with their values, for the log.
func settings(flags *pflag.FlagSet) []string {
	var all []string
	flags.VisitAll(func(flag *pflag.Flag) {
		if !isOfCobra(flag.Name) {
			all = append(all, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return all
}
