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

// Runtime contains the relevant settings of the container runtime.
type Runtime struct {
	// Name is the runtime's name, as used in messages.
	Name string
	// File is the main configuration file, or the socket that the settings were read from. Problem is the error if the
	// settings could not be read.
	File    string
	Problem string

	NRIDisabled bool
	NRISocket   string
	NRITimeout  time.Duration
	// Required are the NRI plugins without which the runtime does not create containers, unless the pod has the
	// annotation named in Tolerated.
	Required  []string
	Tolerated string

	CDIDisabled bool
	CDIDirs     []string
	CNIDirs     []string
	// NetworkDir is the directory with the configuration of the pod network, and of Multus if it is used.
	NetworkDir string
}

// Names of containerd plugins. The names of the CRI plugins changed in configuration version 3.
const (
	nriPlugin        = "io.containerd.nri.v1.nri"
	criRuntimePlugin = "io.containerd.cri.v1.runtime"
	criOldPlugin     = "io.containerd.grpc.v1.cri"
)

// containerdName is the name used for containerd in messages.
const containerdName = "containerd"

// networkDir is the default in containerd and CRI-O.
const networkDir = "/etc/cni/net.d"

const disabledPlugins = "disabled_plugins"

const (
	containerdFile = "/etc/containerd/config.toml"
	// dropIns are read even if the main file does not exist.
	dropIns = "/etc/containerd/conf.d/*.toml"
)

// readContainerd reads a configuration file and everything it imports. It assumes the defaults of containerd 2.2 and
// newer. It reads files because "containerd config dump" is not available in the driver's pod. If the files have
// changed since containerd started, the result contains the new settings.
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

// merge merges a file and its imports into target; later files take precedence.
//
// It works like containerd 2.0 and newer (cmd/containerd/server/config, mergeConfig): imports take precedence over the
// importing file, and tables are merged key by key. Older versions replaced entire sections.
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

// mergeImports merges the files that match the patterns, in pattern order and sorted by name within each pattern. It is
// not an error if no file matches a pattern.
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

// overlay merges the settings in over into target, table by table.
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

// apply copies the configured values into c. A value of the wrong type is ignored, because it is up to containerd to
// validate values. The section of the new CRI plugin is applied last, and takes precedence over the section from an
// older configuration version.
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

// set assigns a value to a field. It ignores values of any other type.
func set[T any](field *T, value any) {
	if typed, matches := value.(T); matches {
		*field = typed
	}
}

// setList assigns the strings in a list to a field. It ignores values that are not lists.
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

// relative converts an absolute path on the node to a path in an fs.FS that represents the node's root.
func relative(file string) string { return strings.TrimPrefix(path.Clean(file), "/") }
