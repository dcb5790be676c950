package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// Containerd contains the relevant settings from containerd's configuration, or containerd's defaults.
type Containerd struct {
	// File is the main configuration file. Problem is the error if it cannot be read.
	File    string
	Problem string

	NRIDisabled bool
	NRISocket   string
	NRITimeout  time.Duration
	// Required are the NRI plugins that containerd requires to create containers, unless the pod has the annotation
	// Tolerated.
	Required  []string
	Tolerated string

	CDIDisabled bool
	CDIDirs     []string
	CNIDirs     []string
}

// Names of containerd's plugins. The CRI plugin names changed in version 3 of the configuration.
const (
	nriPlugin        = "io.containerd.nri.v1.nri"
	criRuntimePlugin = "io.containerd.cri.v1.runtime"
	criOldPlugin     = "io.containerd.grpc.v1.cri"
)

const disabledPlugins = "disabled_plugins"

const (
	containerdFile = "/etc/containerd/config.toml"
	// dropIns are read even if the main file is missing.
	dropIns = "/etc/containerd/conf.d/*.toml"
)

// readContainerd reads a configuration with all its imports. The defaults are those of containerd 2.2 and newer. It
// reads files instead of running "containerd config dump", which is not available in the driver's pod. If the files
// were changed after containerd started, the result contains the new settings.
func readContainerd(root fs.FS, file string) *Containerd {
	c := &Containerd{
		File: file, NRISocket: "/var/run/nri/nri.sock", NRITimeout: 2 * time.Second, CDIDirs: []string{"/etc/cdi",
			"/var/run/cdi"}, CNIDirs: []string{"/opt/cni/bin"},
	}
	settings := map[string]any{}
	err := merge(root, file, settings, map[string]bool{})
	if errors.Is(err, fs.ErrNotExist) && file == containerdFile {
		err = mergeImports(root, file, []any{dropIns}, settings, map[string]bool{})
	}
	if err == nil {
		err = c.apply(settings)
	}
	if err != nil {
		c.Problem = fmt.Sprintf("cannot read containerd's configuration %s: %v", file, err)
	}
	return c
}

// merge adds a file and its imports; later files take precedence.
//
// It follows containerd since 2.0 (cmd/containerd/server/config, mergeConfig): imports take precedence over their file,
// and tables are merged key by key. Older versions replaced whole sections.
func merge(root fs.FS, file string, target map[string]any, seen map[string]bool) error {
	if seen[file] {
		return nil
	}
	seen[file] = true
	data, err := fs.ReadFile(root, relative(file))
	if err != nil {
		return err
	}
	settings := map[string]any{}
	if err := toml.Unmarshal(data, &settings); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	imports, _ := settings["imports"].([]any)
	rest, _ := target[disabledPlugins].([]any)
	if direct, set := settings[disabledPlugins].([]any); set { // the only list that is merged
		settings[disabledPlugins] = slices.Concat(rest, direct)
	}
	overlay(target, settings)
	return mergeImports(root, file, imports, target, seen)
}

// mergeImports merges the files that match the patterns, sorted by name within each pattern. A pattern without matches
// is not an error.
func mergeImports(root fs.FS, file string, imports []any, target map[string]any, seen map[string]bool) error {
	for _, entry := range imports {
		pattern, _ := entry.(string)
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(file), pattern)
		}
		matches, err := fs.Glob(root, relative(pattern))
		if err != nil {
			return err
		}
		for _, match := range matches {
			if err := merge(root, "/"+match, target, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// overlay merges settings into target, table by table.
func overlay(target, over map[string]any) {
	for key, value := range over {
		table, isTable := value.(map[string]any)
		under, wasTable := target[key].(map[string]any)
		if isTable && wasTable {
			overlay(under, table)
			continue
		}
		target[key] = value
	}
}

// section is a relevant section of the configuration. It has the fields of both the NRI and CRI sections.
type section struct {
	Disable        *bool    `toml:"disable"`
	SocketPath     string   `toml:"socket_path"`
	RequestTimeout string   `toml:"plugin_request_timeout"`
	EnableCDI      *bool    `toml:"enable_cdi"`
	CDISpecDirs    []string `toml:"cdi_spec_dirs"`
	CNI            struct {
		BinDir  string   `toml:"bin_dir"`
		BinDirs []string `toml:"bin_dirs"`
	} `toml:"cni"`
	DefaultValidator struct {
		Enable    bool     `toml:"enable"`
		Required  []string `toml:"required_plugins"`
		Tolerated string   `toml:"tolerate_missing_plugins_annotation"`
	} `toml:"default_validator"`
}

// apply copies the configured values into c. It only decodes relevant sections, since other sections may have any
// content. The new CRI section comes last and takes precedence over the section from an old configuration version.
func (c *Containerd) apply(settings map[string]any) error {
	plugins, _ := settings["plugins"].(map[string]any)
	sections := map[string]section{}
	for _, name := range []string{nriPlugin, criOldPlugin, criRuntimePlugin} {
		data, err := toml.Marshal(plugins[name])
		if plugins[name] == nil {
			continue
		}
		var part section
		if err == nil {
			err = toml.Unmarshal(data, &part)
		}
		if err != nil {
			return fmt.Errorf("[plugins.%q]: %w", name, err)
		}
		sections[name] = part
	}
	disabled, _ := settings[disabledPlugins].([]any)
	nri := sections[nriPlugin]
	c.NRIDisabled = nri.Disable != nil && *nri.Disable || slices.Contains(disabled, any(nriPlugin))
	c.NRISocket = cmp.Or(nri.SocketPath, c.NRISocket)
	if nri.RequestTimeout != "" {
		timeout, err := time.ParseDuration(nri.RequestTimeout)
		if err != nil {
			return fmt.Errorf("plugin_request_timeout: %w", err)
		}
		c.NRITimeout = timeout
	}
	if validator := nri.DefaultValidator; validator.Enable {
		c.Required, c.Tolerated = validator.Required, validator.Tolerated
	}
	c.applyCRI(sections[criOldPlugin])
	c.applyCRI(sections[criRuntimePlugin])
	return nil
}

func (c *Containerd) applyCRI(cri section) {
	if cri.EnableCDI != nil {
		c.CDIDisabled = !*cri.EnableCDI
	}
	if cri.CDISpecDirs != nil {
		c.CDIDirs = cri.CDISpecDirs
	}
	if cri.CNI.BinDir != "" {
		c.CNIDirs = []string{cri.CNI.BinDir}
	}
	if cri.CNI.BinDirs != nil {
		c.CNIDirs = cri.CNI.BinDirs
	}
}

// relative converts an absolute path of the node to a path in an fs.FS of its root.
func relative(file string) string { return strings.TrimPrefix(path.Clean(file), "/") }
