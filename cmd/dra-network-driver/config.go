package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// applyFile sets the flags that a file names, unless the command line has set them. The file is a YAML map with the
// names of flags as keys and strings, numbers, booleans or lists of strings as values. A key that is no flag is an
// error: a setting that is silently ignored would be worse.
//
// It must be called after the command line was parsed, since that marks flags as changed. Names are applied in their
// order, so that of several errors always the same is reported.
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
	for _, name := range sortedNames(settings) {
		flag := flags.Lookup(name)
		if flag == nil || name == configFlag || isOfCobra(name) {
			return fmt.Errorf("--config %s: there is no setting %q; settings are called as flags are, see --help", path,
				name)
		}
		// The command line wins: an administrator adds a flag to try something without touching the file of all nodes.
		if flag.Changed {
			continue
		}
		value, err := asText(settings[name])
		if err == nil {
			err = flags.Set(name, value)
		}
		if err != nil {
			return fmt.Errorf("--config %s: %s: %w", path, name, err)
		}
	}
	return nil
}

// asText returns a value as it would be on the command line. Lists are joined by commas, as pflag reads them, so an
// element can have none.
func asText(value any) (string, error) {
	switch value := value.(type) {
	case string, bool, int64, float64:
		return fmt.Sprint(value), nil
	case []any:
		parts := make([]string, len(value))
		for i := range value {
			part, ok := value[i].(string)
			if !ok {
				return "", fmt.Errorf("%v is no string", value[i])
			}
			parts[i] = part
		}
		return strings.Join(parts, ","), nil
	}
	return "", fmt.Errorf("%v is neither a string, a number, a boolean nor a list of strings", value)
}

// isOfCobra reports whether a flag is one that cobra adds to every command and acts upon before a file is read.
func isOfCobra(name string) bool { return name == "help" || name == "version" }

// settings are all flags with their values, for the log.
func settings(flags *pflag.FlagSet) []string {
	var all []string
	flags.VisitAll(func(flag *pflag.Flag) {
		if !isOfCobra(flag.Name) {
			all = append(all, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return all
}

func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
