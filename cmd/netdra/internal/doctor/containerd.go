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

// Runtime contains the container runtime's relevant settings.
type Runtime struct {
	// Name is the runtime's name in messages.
	Name string
	// File is the main configuration file, or the socket that the settings were read from. Problem is the error if the
	// settings cannot be read.
	File    string
	Problem string

	NRIDisabled bool
	NRISocket   string
	NRITimeout  time.Duration
	// Required are the NRI plugins that the runtime requires for creating containers, unless the pod has the annotation
	// Tolerated.
	Required  []string
	Tolerated string

	CDIDisabled bool
	CDIDirs     []string
	CNIDirs     []string
	// NetworkDir contains the configuration of the pod network, and of Multus if it is used.
	NetworkDir string
}

// Names of containerd's plugins. The CRI plugin names changed in version 3 of the configuration.
const (
	nriPlugin        = "io.containerd.nri.v1.nri"
	criRuntimePlugin = "io.containerd.cri.v1.runtime"
	criOldPlugin     = "io.containerd.grpc.v1.cri"
)

// containerdName is containerd's name in messages.
const containerdName = "containerd"

// networkDir is the default of containerd and CRI-O.
const networkDir = "/etc/cni/net.d"

const disabledPlugins = "disabled_plugins"

const (
	containerdFile = "/etc/containerd/config.toml"
	// dropIns are read even if the main file is missing.
	dropIns = "/etc/containerd/conf.d/*.toml"
)

// readContainerd reads a configuration with all its imports. It uses the defaults of containerd 2.2 and newer. It reads
// files instead of running "containerd config dump", which is not available in the driver's pod. If the files were
// changed after containerd started, the result contains the new settings.
func readContainerd(root fs.FS, file string) *Runtime {
	c := &Runtime{
		Name: containerdName, File: file, NRISocket: "/var/run/nri/nri.sock", NRITimeout: 2 * time.Second,
		CDIDirs: []string{"/etc/cdi", "/var/run/cdi"}, CNIDirs: []string{"/opt/cni/bin"}, NetworkDir: networkDir,
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
// It works like containerd 2.0 and newer (cmd/containerd/server/config, mergeConfig): imports take precedence over the
// file that imports them, and tables are merged key by key. Older versions replaced whole sections.
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

// apply copies the configured values into c. A value of the wrong type is treated as not set, because validating values
// is up to containerd. The new CRI section comes last and takes precedence over the section from an old configuration
// version.
func (c *Runtime) apply(settings map[string]any) error {
	plugins := table(settings, "plugins")
	nri := table(plugins, nriPlugin)
	disabled, _ := settings[disabledPlugins].([]any)
	c.NRIDisabled = nri["disable"] == true || slices.Contains(disabled, any(nriPlugin))
	socket, _ := nri["socket_path"].(string)
	c.NRISocket = cmp.Or(socket, c.NRISocket)
	if text, _ := nri["plugin_request_timeout"].(string); text != "" {
		timeout, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("plugin_request_timeout: %w", err)
		}
		c.NRITimeout = timeout
	}
	if validator := table(nri, "default_validator"); validator["enable"] == true {
		setList(&c.Required, validator["required_plugins"])
		set(&c.Tolerated, validator["tolerate_missing_plugins_annotation"])
	}
	for _, name := range []string{criOldPlugin, criRuntimePlugin} {
		cri := table(plugins, name)
		enabled := !c.CDIDisabled
		set(&enabled, cri["enable_cdi"])
		c.CDIDisabled = !enabled
		setList(&c.CDIDirs, cri["cdi_spec_dirs"])
		if dir, isText := table(cri, "cni")["bin_dir"].(string); isText && dir != "" {
			c.CNIDirs = []string{dir}
		}
		setList(&c.CNIDirs, table(cri, "cni")["bin_dirs"])
		set(&c.NetworkDir, table(cri, "cni")["conf_dir"])
	}
	return nil
}

// table returns a nested table; empty if there is none.
func table(settings map[string]any, key string) map[string]any {
	inner, _ := settings[key].(map[string]any)
	return inner
}

// set assigns a value to a field, and ignores a value of another type.
func set[T any](field *T, value any) {
	if typed, matches := value.(T); matches {
		*field = typed
	}
}

// setList assigns the strings in a list to a field, and ignores a value that is not a list.
func setList(field *[]string, value any) {
	list, isList := value.([]any)
	if !isList {
		return
	}
	*field = nil
	for _, item := range list {
		*field = append(*field, fmt.Sprint(item))
	}
}

// relative converts an absolute path on the node to a path in an fs.FS for the node's root.
func relative(file string) string { return strings.TrimPrefix(path.Clean(file), "/") }
