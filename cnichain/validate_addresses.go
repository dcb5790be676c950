package cnichain

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// addressRun is a range of addresses in an IPAM plugin's configuration. All fields are optional. A field has the
// invalid zero value if it is missing, is a template (whose value is known only for a specific pod), or cannot be
// parsed (which the format check reports).
type addressRun struct {
	path        *field.Path
	network     netip.Prefix
	first, last netip.Addr
	// unknown is true if one end is set but its value is not known here. Such a run cannot be compared with other runs.
	unknown bool
}

// addressRuns checks the address runs of an IPAM plugin: the runs in the plugin's parameter for them, and a single run
// at the top level (an older format).
type addressRuns struct {
	cniType string
	form    *v1alpha1.AddressBlocks
	text    func(any) string // returns "" for values that are not strings, and for templates
	add     func(*field.Error)
	checked []addressRun // the runs that are individually valid
}

// addressRuns reports runs of addresses that a plugin would reject when a pod starts.
func (c *contracts) addressRuns(path *field.Path, cniType string, ipam map[string]any, form *v1alpha1.AddressBlocks) {
	runs := &addressRuns{cniType: cniType, form: form, add: c.add, text: c.literal}
	if ipam[form.Network] != nil {
		runs.list([]addressRun{runs.read(path, ipam)})
	}
	lists, _ := ipam[form.Parameter].([]any)
	for i, list := range lists {
		elements, isList := list.([]any)
		listPath := path.Child(form.Parameter).Index(i)
		if isList && len(elements) == 0 {
			c.add(field.Required(listPath, cniType+" does not accept an empty list: name a run of addresses, or "+
				"remove the list"))
		}
		var read []addressRun
		for j, element := range elements {
			if object, isObject := element.(map[string]any); isObject {
				read = append(read, runs.read(listPath.Index(j), object))
			}
		}
		runs.list(read)
	}
}

func (a *addressRuns) read(path *field.Path, object map[string]any) addressRun {
	run := addressRun{path: path}
	if network, err := netip.ParsePrefix(a.text(object[a.form.Network])); err == nil && !network.Addr().Is4In6() {
		run.network = network
	}
	run.first, _ = netip.ParseAddr(a.text(object[a.form.First]))
	run.last, _ = netip.ParseAddr(a.text(object[a.form.Last]))
	run.first, run.last = run.first.Unmap(), run.last.Unmap() // as plugins written in Go do
	run.unknown = object[a.form.First] != nil && !run.first.IsValid() ||
		object[a.form.Last] != nil && !run.last.IsValid()
	return run
}

// list checks the runs in one list. A pod gets one address from each list.
func (a *addressRuns) list(runs []addressRun) {
	known := slices.IndexFunc(runs, func(r addressRun) bool { return r.network.IsValid() })
	for i := range runs {
		run := &runs[i]
		if !a.run(run) || !run.network.IsValid() {
			continue
		}
		if family := runs[known].network; family.Addr().Is4() != run.network.Addr().Is4() {
			a.add(field.Invalid(run.path.Child(a.form.Network), run.network.String(), fmt.Sprintf("is of another IP "+
				"family than %s: a pod gets one address of each list; give each family a list of its own", family)))
			continue
		}
		if !run.unknown {
			a.overlap(run)
			a.checked = append(a.checked, *run)
		}
	}
}

// run checks a single run and reports whether it is valid.
func (a *addressRuns) run(run *addressRun) bool {
	right := true
	if masked := run.network.Masked(); run.network != masked {
		a.add(field.Invalid(run.path.Child(a.form.Network), run.network.String(), fmt.Sprintf("has host bits set: "+
			"write %s", masked)))
		right = false
	}
	// The first address is the network address, the last address is the broadcast address, and plugins reserve one for
	// a gateway.
	if hosts := run.network.Addr().BitLen() - run.network.Bits(); run.network.IsValid() && hosts < 2 {
		a.add(field.Invalid(run.path.Child(a.form.Network), run.network.String(),
			"has no address that a pod could get: write a larger one"))
		right = false
	}
	first := a.inside(run, a.form.First, run.first)
	last := a.inside(run, a.form.Last, run.last)
	if first && last && run.first.IsValid() && run.last.IsValid() && run.last.Less(run.first) {
		a.add(field.Invalid(run.path.Child(a.form.Last), run.last.String(), fmt.Sprintf("is before %s, which is %s: "+
			"swap them", a.form.First, run.first)))
		right = false
	}
	return right && first && last
}

// inside reports whether an end of a run lies within the run's network. It returns true if the end or the network is
// unknown.
func (a *addressRuns) inside(run *addressRun, key string, address netip.Addr) bool {
	if !address.IsValid() || !run.network.IsValid() || run.network.Contains(address) {
		return true
	}
	a.add(field.Invalid(run.path.Child(key), address.String(), fmt.Sprintf("is outside of %s %s: name an address of "+
		"it, or another %s", a.form.Network, run.network.Masked(), a.form.Network)))
	return false
}

// overlap adds an error if a run overlaps one of the preceding runs.
func (a *addressRuns) overlap(run *addressRun) {
	first, last := run.ends()
	for i := range a.checked {
		start, end := a.checked[i].ends()
		if first.Is4() == start.Is4() && first.Compare(end) <= 0 && start.Compare(last) <= 0 {
			a.add(field.Invalid(run.path, fmt.Sprintf("%s-%s", first, last), fmt.Sprintf("has addresses of %s, which "+
				"is %s-%s: name each address once", a.checked[i].path, start, end)))
			return
		}
	}
}

// ends returns the first and the last address of a run that has a network. By default, these are the first and last
// host addresses in the network.
func (r *addressRun) ends() (first, last netip.Addr) {
	first, last = r.first, r.last
	if !first.IsValid() {
		first = r.network.Addr().Next()
	}
	if !last.IsValid() {
		last = addresses.Last(r.network)
		if last.Is4() {
			last = last.Prev() // skip the broadcast address
		}
	}
	return first, last
}

// givenRanges returns the parameter for address runs if the configuration may omit it. This is the case if the
// addresses come from an AddressRange, the top level or the runtime configuration, or if a key is misspelled, which is
// reported as a separate error.
func givenRanges(step *v1alpha1.Step, ipam map[string]any, schema *v1alpha1.CNIPluginSchemaSpec) []string {
	form := schema.AddressBlocks
	var config struct {
		RuntimeConfig map[string]json.RawMessage `json:"runtimeConfig"`
	}
	_ = json.Unmarshal(rawConfig(step), &config) // validation rejects a configuration that cannot be decoded
	misspelt := slices.ContainsFunc(slices.Collect(maps.Keys(ipam)), func(key string) bool {
		return key != "type" && !hasProperty(schema.Config, key)
	})
	if step.AddressRange != "" || ipam[form.Network] != nil || config.RuntimeConfig[runtimeRanges] != nil || misspelt {
		return []string{form.Parameter}
	}
	return nil
}

// rangesRemedy returns, by parameter, the suggested fix for an IPAM configuration without addresses.
func rangesRemedy(schema *v1alpha1.CNIPluginSchemaSpec) map[string]string {
	form := schema.AddressBlocks
	written := form.Parameter
	if hasProperty(schema.Config, form.Network) {
		written = fmt.Sprintf("%s, such as 10.20.0.0/24, or %s", form.Network, form.Parameter)
	}
	return map[string]string{form.Parameter: fmt.Sprintf("write %s, or name an AddressRange in the step's addressRange",
		written)}
}

// withoutEmptyList removes an empty list of runs from an IPAM plugin's configuration. Plugins treat an empty list like
// a missing one.
func withoutEmptyList(ipam map[string]any, parameter string) map[string]any {
	if list, isList := ipam[parameter].([]any); isList && len(list) == 0 {
		ipam = maps.Clone(ipam)
		delete(ipam, parameter)
	}
	return ipam
}
