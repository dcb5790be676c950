package nodeattributes

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// write creates or replaces a file in the way that programs should: it writes a complete temporary file, then renames
// it.
func write(t *testing.T, dir, name, content string) {
	t.Helper()
	next := filepath.Join(dir, "."+name+".new")
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// device returns a file with one row.
func device(selector, attributes string) string {
	return fmt.Sprintf(`{"devices": [{%s, "attributes": {%s}}]}`, selector, attributes)
}

// An invalid file is reported, and its last valid content stays in use until the file is corrected or removed.
func TestLastValidContent(t *testing.T) {
	d := &Directory{Path: filepath.Join(t.TempDir(), "attributes.d")}
	expect := func(want string, problem string) {
		t.Helper()
		files, problems := d.Read()
		text, err := json.Marshal(files)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("files = %s, want %s", text, want)
		}
		if (problem == "") != (len(problems) == 0) || problem != "" && !strings.Contains(problems[0].Message, problem) {
			t.Errorf("problems = %v, want %q", problems, problem)
		}
		if diff := cmp.Diff(files, d.Files()); diff != "" {
			t.Errorf("Files differs from the result of Read:\n%s", diff)
		}
	}
	expect("null", "") // the directory does not exist
	if err := os.Mkdir(d.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, d.Path, "a.json", `{"devices": [`)
	expect("null", "cannot use attribute file "+d.Path+"/a.json: ")
	write(t, d.Path, "a.json", device(`"interface": "eth1"`, `"example.com/rail": 1`))
	expect(`"example.com/rail":1`, "")
	write(t, d.Path, "a.json", device(`"interface": "eth1"`, `"example.com/rail": 1.5`))
	expect(`"example.com/rail":1`, "write a string, an integer or a boolean")
	write(t, d.Path, "a.json", device(`"interface": "eth1"`, `"example.com/rail": 2`))
	expect(`"example.com/rail":2`, "")
	if err := os.Remove(filepath.Join(d.Path, "a.json")); err != nil {
		t.Fatal(err)
	}
	expect("null", "")
	for i := range maxFiles + 2 {
		write(t, d.Path, fmt.Sprintf("%02d.json", i), device(`"allDevices": true`, `"example.com/rail": 1`))
	}
	expect(`"name":"15.json"`, fmt.Sprintf("16.json: it is one of %d files, and the limit is %d", maxFiles+2, maxFiles))
	if files := d.Files(); len(files) != maxFiles {
		t.Errorf("%d files are used, want the maximum number", len(files))
	}
	if err := os.RemoveAll(d.Path); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Dir(d.Path), "attributes.d", "") // not a directory
	expect(`"name":"15.json"`, "cannot list attribute files: ")
}

// Each rule of the format is enforced with an error that identifies the row.
func TestRejectedContent(t *testing.T) {
	many := func(count int, format string) string {
		parts := make([]string, count)
		for i := range parts {
			parts[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(parts, ", ")
	}
	rail := func(selector string) string { return device(selector, `"example.com/rail": 1`) }
	eth1 := func(attributes string) string { return device(`"interface": "eth1"`, attributes) }
	for name, test := range map[string]struct{ content, want string }{
		"no object":        {`[]`, `does not have the form {"devices": [{…}]}`},
		"no MAC address":   {`{"devices": [{"mac": "eth0", "attributes": {"example.com/rail": 1}}]}`, "octets in hexadecimal"},
		"unknown field":    {`{"device": []}`, `unknown field "device"`},
		"misspelled":       {rail(`"pciaddress": "0000:18:00.0"`), `unknown field "devices[0].pciaddress"`},
		"twice":            {rail(`"interface": "a", "interface": "b"`), `duplicate field "devices[0].interface"`},
		"more than one":    {rail(`"interface": "a"`) + rail(`"interface": "b"`), "after top-level value"},
		"large":            {strings.Repeat(" ", maxBytes) + rail(`"interface": "a"`), "the limit is 262144"},
		"no selector":      {rail(`"interface": ""`), "devices[0]: Required value: exactly one"},
		"two selectors":    {rail(`"interface": "a", "allDevices": true`), "devices[0]: Required value: exactly one"},
		"address":          {rail(`"pciAddress": "18:00.0"`), "devices[0].pciAddress: Invalid value"},
		"many rows":        {`{"devices": [` + many(257, `{"interface": "e%d", "attributes": {}}`) + `]}`, "257"},
		"many attributes":  {eth1(many(17, `"a.b/c%d": 1`)), "devices[0].attributes: Too many: 17"},
		"list":             {eth1(`"a.b/c": [1]`), "write a string, an integer or a boolean"},
		"long string":      {eth1(`"a.b/c": "` + strings.Repeat("x", 65) + `"`), "has 65 bytes, the limit is 64"},
		"empty string":     {eth1(`"a.b/c": ""`), "is empty: leave out an attribute whose value is unknown"},
		"long name":        {eth1(`"a.b/` + strings.Repeat("c", 33) + `": 1`), "at most 32 characters"},
		"bare name":        {eth1(`"rail": 1`), "the domain dra.networking belongs to the driver"},
		"driver's domain":  {eth1(`"dra.networking/ifName": "x"`), "the driver discovers this attribute"},
		"driver's plugins": {eth1(`"cni.dra.networking/macvlan": true`), "the driver sets the attributes"},
		"Kubernetes":       {eth1(`"resource.kubernetes.io/pcieRoot": "x"`), "the domain belongs to Kubernetes"},
		"two types, one row": {`{"devices": [` + many(2, `{"interface": "e%[1]d", "attributes": {"a.b/c": "x"}}`) +
			`, {"interface": "e", "attributes": {"a.b/c": 1}}]}`, "is an integer, but a string in an earlier row"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Directory{Path: t.TempDir()}
			write(t, d.Path, "a.json", test.content)
			files, problems := d.Read()
			if len(files) > 0 || len(problems) != 1 || !strings.Contains(problems[0].Message, test.want) {
				t.Errorf("got files %v and problems %v, want no files and problem %q", files, problems, test.want)
			}
		})
	}
}

// Temporary files, unrelated files and directories are not read.
func TestIgnoredFiles(t *testing.T) {
	d := &Directory{Path: t.TempDir()}
	for _, name := range []string{".a.json.new", ".hidden.json", "a.json.orig", "README"} {
		write(t, d.Path, name, "x")
	}
	if files, problems := d.Read(); files != nil || problems != nil {
		t.Errorf("got files %v and problems %v, want none", files, problems)
	}
	if err := os.Mkdir(filepath.Join(d.Path, "b.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, problems := d.Read(); len(problems) != 1 || !strings.Contains(problems[0].Message, "not a regular file") {
		t.Errorf("problems = %v, want one about a file that is not regular", problems)
	}
}

// printed returns the devices' attributes as text.
func printed(devices []discovery.Device) string {
	var lines []string
	for i := range devices {
		line := string(devices[i].Name) + ":"
		for _, name := range slices.Sorted(maps.Keys(devices[i].Attributes)) {
			switch v := devices[i].Attributes[name]; {
			case v.StringValue != nil:
				line += fmt.Sprintf(" %s=%q", name, *v.StringValue)
			case v.IntValue != nil:
				line += fmt.Sprintf(" %s=%d", name, *v.IntValue)
			case v.BoolValue != nil:
				line += fmt.Sprintf(" %s=%t", name, *v.BoolValue)
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// An attribute is set by the most specific row, or by the first of several equally specific rows.
func TestApply(t *testing.T) {
	facts := discovery.Facts{Devices: []discovery.Device{
		{Name: "br0", Interface: "br0", MAC: "02:00:00:00:00:01", InheritedMAC: true},
		{Name: "pf", Interface: "pf", PCIAddress: "0000:18:00.0", MAC: "02:00:00:00:00:01"},
		{Name: "pfv0", PCIAddress: "0000:18:00.1", PFAddress: "0000:18:00.0", PFName: "pf"},
		{Name: "pfv1", PCIAddress: "0000:18:00.2", PFAddress: "0000:18:00.0", PFName: "pf"},
		{Name: "sf", Interface: "sf", AuxiliaryDevice: "mlx5_core.sf.2", PFAddress: "0000:18:00.0", PFName: "pf"},
	}, Orphans: []discovery.Device{{PCIAddress: "0000:19:00.1", PFAddress: "0000:19:00.0"}}}
	d := &Directory{Path: t.TempDir()}
	write(t, d.Path, "10-cloud.json", `{"devices": [
		{"allDevices": true, "attributes": {"cloud.example/block": "b7", "x.example/rail": 99}},
		{"mac": "02-00-00-00-00-01", "attributes": {"cloud.example/network": 4611686018427387905}}]}`)
	write(t, d.Path, "20-rails.json", `{"devices": [
		{"pciAddress": "0000:18:00.0", "attributes": {"x.example/rail": 3, "x.example/spare": false}},
		{"pciAddress": "0000:19:00.0", "attributes": {"x.example/rail": 4}},
		{"interface": "pf", "attributes": {"x.example/spare": false}},
		{"pciAddress": "0000:18:00.2", "attributes": {"x.example/rail": 5}}]}`)
	write(t, d.Path, "30-more.json", device(`"pciAddress": "0000:18:00.2"`, `"x.example/rail": 6`))
	files, problems := d.Read()
	if problems != nil {
		t.Fatal(problems)
	}
	got := Apply(facts, files)
	const want = `br0: cloud.example/block="b7" x.example/rail=99
pf: cloud.example/block="b7" cloud.example/network=4611686018427387905 x.example/rail=3 x.example/spare=false
pfv0: cloud.example/block="b7" cloud.example/network=4611686018427387905 x.example/rail=3 x.example/spare=false
pfv1: cloud.example/block="b7" cloud.example/network=4611686018427387905 x.example/rail=5 x.example/spare=false
sf: cloud.example/block="b7" cloud.example/network=4611686018427387905 x.example/rail=3 x.example/spare=false`
	if diff := cmp.Diff(want, printed(got.Devices)); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if text := printed(got.Orphans); text != `: cloud.example/block="b7" x.example/rail=4` {
		t.Errorf("wrong orphans: %s", text)
	}
	if len(got.Problems) != 1 || got.Problems[0].String() != "pfv1: cannot use another value of attribute "+
		"x.example/rail from attribute file 30-more.json: it has a value from 20-rails.json; remove one of them" {
		t.Errorf("wrong problems: %v", got.Problems)
	}
	if text := printed(facts.Devices[:2]); text != "br0:\npf:" {
		t.Errorf("Apply changed its argument: %s", text)
	}
	if without := Apply(facts, nil); without.Devices[1].Attributes != nil {
		t.Errorf("attributes without files = %v, want none", without.Devices[1].Attributes)
	}
	var copied []discovery.Device // as in claim records
	text, err := json.Marshal(got.Devices)
	if err == nil {
		err = json.Unmarshal(text, &copied)
	}
	if diff := cmp.Diff(got.Devices, copied); err != nil || diff != "" {
		t.Errorf("attributes do not survive JSON (error %v):\n%s", err, diff)
	}
}
