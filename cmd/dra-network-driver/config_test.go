package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Settings are taken from the command line first, then from the file, then from the defaults.
func TestSettings(t *testing.T) {
	for name, test := range map[string]struct {
		file      string
		arguments []string
		want      map[string]string // flags
		err       string
	}{
		"defaults": {"", nil,
			map[string]string{"v": "2", "cni-bin-dir": "[/opt/cni/bin]", "cdi-dir": "/var/run/cdi"}, ""},
		"file": {"v: 4\ncni-bin-dir: [/a, /b]\nlist-attributes: true\ncni-log-retention: 2h", nil,
			map[string]string{"v": "4", "cni-bin-dir": "[/a,/b]", "list-attributes": "true",
				"cni-log-retention": "2h0m0s"}, ""},
		"command line": {"v: 4\ncdi-dir: /file", []string{"-v=6"},
			map[string]string{"v": "6", "cdi-dir": "/file"}, ""},
		"unknown":             {"verbosity: 4", nil, nil, `unknown setting "verbosity"`},
		"not itself":          {"config: /x", nil, nil, `unknown setting "config"`},
		"not the version":     {"version: true", nil, nil, `unknown setting "version"`},
		"not the help":        {"help: true", nil, nil, `unknown setting "help"`},
		"twice":               {"v: 4\nv: 5", nil, nil, "already set"},
		"no map":              {"- v", nil, nil, "write a YAML map of flag names to values"},
		"wrong type":          {"v: many", nil, nil, "v: "},
		"wrong structure":     {"v: {a: b}", nil, nil, "v: map[a:b] is not a string"},
		"wrong list":          {"cni-bin-dir: [1]", nil, nil, "1 is not a string"},
		"wrong duration":      {"cni-log-retention: 2", nil, nil, "cni-log-retention: "},
		"null":                {"cdi-dir:", nil, nil, "cdi-dir: "},
		"empty file is valid": {"{}", nil, map[string]string{"v": "2"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := command()
			cmd.InitDefaultHelpFlag() // as Execute does
			cmd.InitDefaultVersionFlag()
			if err := cmd.ParseFlags(test.arguments); err != nil {
				t.Fatal(err)
			}
			var err error
			if test.file != "" {
				path := filepath.Join(t.TempDir(), "config.yaml")
				if err := os.WriteFile(path, []byte(test.file), 0o600); err != nil {
					t.Fatal(err)
				}
				err = applyFile(cmd.Flags(), path)
			}
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error is %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for flag, want := range test.want {
				if got := cmd.Flags().Lookup(flag).Value.String(); got != want {
					t.Errorf("%s is %s, want %s", flag, got, want)
				}
			}
		})
	}
}

// The log contains all settings, and no other flags.
func TestLoggedSettings(t *testing.T) {
	cmd := command()
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	logged := settings(cmd.Flags())
	if !slices.Contains(logged, "--v=2") || slices.Contains(logged, "--version=false") ||
		slices.Contains(logged, "--help=false") {
		t.Errorf("the log has %q", logged)
	}
}

func TestSettingsOfAMissingFile(t *testing.T) {
	if err := applyFile(command().Flags(), "/nowhere"); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("error is %v", err)
	}
}
