package cnichain

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// TestSchemasKnowThePluginsParameters compares the built-in schemas with the configuration structs of the
// containernetworking plugins, in the version that this module requires.
func TestSchemasKnowThePluginsParameters(t *testing.T) {
	dir := moduleDir(t, "github.com/containernetworking/plugins")
	for cniType, plugin := range map[string]struct {
		folder, config string
		ours           string   // the directory of one of this project's plugins
		leftOut        []string // intentionally omitted: see the comment at the top of schemas/interfaces.yaml
	}{
		"bridge":      {folder: "main/bridge", config: "NetConf", leftOut: []string{"disableContainerInterface"}},
		"macvlan":     {folder: "main/macvlan", config: "NetConf"},
		"ipvlan":      {folder: "main/ipvlan", config: "NetConf"},
		"host-device": {folder: "main/host-device", config: "NetConf", leftOut: []string{"hwaddr", "kernelpath"}},
		"netdev":      {ours: "../cmd/internal/netdev", config: "config"},
		"vlan":        {folder: "main/vlan", config: "NetConf"},
		"ptp":         {folder: "main/ptp", config: "NetConf"},
		"tap":         {folder: "main/tap", config: "NetConf"},
		"dummy":       {folder: "main/dummy"}, // only reads the common parameters
		"tuning":      {folder: "meta/tuning", config: "TuningConf"},
		"sbr":         {folder: "meta/sbr", config: "PluginConf"},
		"bandwidth":   {folder: "meta/bandwidth", config: "PluginConf"},
		"vrf":         {folder: "meta/vrf", config: "VRFNetConf"},
		"portmap":     {folder: "meta/portmap", config: "PortMapConf"},
		"firewall":    {folder: "meta/firewall", config: "FirewallNetConf"},
		"host-local":  {folder: "ipam/host-local/backend/allocator", config: "IPAMConfig"},
		"static":      {folder: "ipam/static", config: "IPAMConfig"},
		"dhcp":        {folder: "ipam/dhcp", config: "IPAMConfig"},
	} {
		t.Run(cniType, func(t *testing.T) {
			schema, known := DefaultSchemas().Lookup(cniType)
			if !known {
				t.Fatal("the plugin has no schema")
			}
			source := parseStructs(t, or(plugin.ours, filepath.Join(dir, "plugins", plugin.folder)))
			want := map[string]v1alpha1.ParameterType{}
			if plugin.config != "" {
				source.fields(t, plugin.config, want)
			}
			for _, everywhere := range append(plugin.leftOut, "type", "name", "prevResult", "runtimeConfig",
				"args", "ipam") {
				delete(want, everywhere)
			}
			got := map[string]v1alpha1.ParameterType{}
			for name, parameter := range schema.Config.Properties {
				if _, typed := want[name]; name != "ipam" {
					got[name] = parameter.Type
					if typed && want[name] == "" { // a type that is not in the directory
						want[name] = parameter.Type
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong parameters (-plugin +schema):\n%s", diff)
			}
		})
	}
}

func or(value, otherwise string) string {
	if value != "" {
		return value
	}
	return otherwise
}

// moduleDir returns the source directory of a required module.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil || strings.TrimSpace(string(out)) == "" {
		t.Skipf("the sources of %s are not available: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}

// structs contains the struct types in a directory, by name.
type structs map[string]*ast.StructType

func parseStructs(t *testing.T, dir string) structs {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no source files in %s: %v", dir, err)
	}
	found := structs{}
	for _, path := range slices.DeleteFunc(paths,
		func(path string) bool { return strings.HasSuffix(path, "_test.go") }) {
		file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, isType := node.(*ast.TypeSpec); isType {
				if fields, isStruct := spec.Type.(*ast.StructType); isStruct {
					found[spec.Name.Name] = fields
				}
			}
			return true
		})
	}
	return found
}

// fields adds the JSON names of a struct's fields with their types, or "" for types from other packages. Fields without
// a tag are not part of the configuration.
func (s structs) fields(t *testing.T, name string, found map[string]v1alpha1.ParameterType) {
	t.Helper()
	if s[name] == nil {
		t.Fatalf("the sources have no struct %s", name)
	}
	for _, field := range s[name].Fields.List {
		if len(field.Names) == 0 { // embedded; structs from other packages contain the common parameters
			if local, isLocal := deref(field.Type).(*ast.Ident); isLocal {
				s.fields(t, local.Name, found)
			}
			continue
		}
		if field.Tag == nil {
			continue
		}
		key, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
		if key != "" && key != "-" {
			found[key] = jsonType(field.Type)
		}
	}
}

func deref(expression ast.Expr) ast.Expr {
	if pointer, isPointer := expression.(*ast.StarExpr); isPointer {
		return pointer.X
	}
	return expression
}

func jsonType(expression ast.Expr) v1alpha1.ParameterType {
	switch expression := deref(expression).(type) {
	case *ast.ArrayType:
		return v1alpha1.TypeArray
	case *ast.MapType:
		return v1alpha1.TypeObject
	case *ast.Ident:
		switch strings.TrimRight(expression.Name, "0123456789") {
		case "string":
			return v1alpha1.TypeString
		case "bool":
			return v1alpha1.TypeBoolean
		case "int", "uint":
			return v1alpha1.TypeInteger
		}
	}
	return ""
}

// Patterns from users who can write schemas or reach the webhook must not overload the controller.
func TestSchemasHaveFewPatterns(t *testing.T) {
	schema := v1alpha1.CNIPluginSchemaSpec{CNIType: "mine",
		Config: &v1alpha1.PluginConfig{Properties: map[string]v1alpha1.Parameter{}}}
	for i := range 300 {
		schema.Config.Properties[fmt.Sprintf("p%03d", i)] = v1alpha1.Parameter{Type: v1alpha1.TypeString,
			Pattern: "^[a-z]+$"}
	}
	if problems := ValidateSchema(&schema); len(problems) > 0 {
		t.Error(problems)
	}
	for _, name := range []string{"q", "r"} {
		schema.Config.Properties[name] = v1alpha1.Parameter{Type: v1alpha1.TypeString, Pattern: "("}
	}
	want := "spec.config.properties[q].pattern: Forbidden: a schema has at most 300 patterns: remove some"
	if problems := ValidateSchema(&schema); len(problems) != 1 || problems[0].Error() != want {
		t.Errorf("problems = %v, want %s", problems, want)
	}
}

// If a plugin allows only one queue per interface, two steps that use the plugin on the same interface would fail
// during ADD, so they are rejected when the topology is created.
func TestOneBandwidthForEachInterface(t *testing.T) {
	const limit = "{name: %s, type: bandwidth, dependOn: [%s], config: {egressRate: 1000, egressBurst: 1000}}"
	for name, test := range map[string]struct {
		parents [2]string
		refused bool
	}{
		"one interface":    {[2]string{"left", "left"}, true},
		"after the other":  {[2]string{"left", "one"}, true},
		"other interfaces": {[2]string{"left", "right"}, false},
	} {
		topology := &v1alpha1.NetworkTopology{}
		steps := "- {name: left, type: bridge}\n- {name: right, type: bridge}\n- " +
			fmt.Sprintf(limit, "one", test.parents[0]) + "\n- " + fmt.Sprintf(limit, "two", test.parents[1])
		if err := yaml.Unmarshal([]byte(steps), &topology.Spec.Steps); err != nil {
			t.Fatal(err)
		}
		problems := CheckContracts(topology, DefaultSchemas())
		if (len(problems) > 0) != test.refused || test.refused &&
			!strings.Contains(problems.ToAggregate().Error(), `on which step "one" runs bandwidth`) {
			t.Errorf("%s: wrong problems: %v", name, problems)
		}
	}
}
