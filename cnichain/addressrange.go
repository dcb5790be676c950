package cnichain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// runtimeRanges is the key for address ranges in the CNI runtime configuration (CNI conventions, "ipRanges").
const runtimeRanges = "ipRanges"

// maxRangeName is the maximum length of an AddressRange's name.
const maxRangeName = 63

// BlockRoom is one of the node's AddressBlocks with its remaining capacity.
type BlockRoom struct {
	addresses.Block
	// Room is the number of additional pods that can get addresses from the block.
	Room int
}

// StepRange is the source of a step's addresses.
type StepRange struct {
	// Name is the name of the AddressRange.
	Name string `json:"name"`
	// Block is the node's AddressBlock. The claim reserves one of the block's addresses for each pod that uses the
	// claim, whether or not the pod is attached, so that the block is never exhausted when a pod starts.
	Block string `json:"block"`
	// Size is the number of pods that can get addresses from the block.
	Size int `json:"size"`
}

// rangeNetwork returns the CNI network that all steps with a given AddressRange share. IPAM plugins keep track of
// assigned addresses separately for each network, and two topologies must not assign the same address.
func rangeNetwork(addressRange string) string { return "addressrange." + addressRange }

// addressRange rejects configurations that would make a plugin assign addresses outside the node's blocks, or assign an
// address twice.
func (v *validator) addressRange(path *field.Path, step *v1alpha1.Step) {
	if step.AddressRange == "" {
		return
	}
	rangePath := path.Child("addressRange")
	for _, problem := range validation.IsDNS1123Subdomain(step.AddressRange) {
		v.add(field.Invalid(rangePath, step.AddressRange, problem))
	}
	if len(step.AddressRange) > maxRangeName {
		v.add(field.TooLong(rangePath, step.AddressRange, maxRangeName))
	}
	if step.Network != "" {
		v.add(field.Forbidden(path.Child("network"), "the steps of an addressRange have one CNI network, so that no "+
			"address is assigned twice: remove network"))
	}
	if i := slices.Index(step.ClaimParameters, v1alpha1.ClaimIPs); i >= 0 {
		v.add(field.Forbidden(path.Child("claimParameters").Index(i), "addresses of an addressRange come from the "+
			"pod's node, which a claim cannot know: remove ips from claimParameters"))
	}
	ipamPath, ipam := path.Child("config", "ipam"), IPAMType(rawConfig(step))
	if ipam == "" {
		v.add(field.Required(ipamPath.Child("type"), "name the IPAM plugin that assigns the addresses of the "+
			"addressRange, for example host-local"))
		return
	}
	schema, _ := v.schemas.Lookup(ipam)
	if schema.AddressBlocks == nil {
		v.add(field.Invalid(ipamPath.Child("type"), ipam, "cannot receive the addresses of an addressRange: its "+
			"schema has no addressBlocks; use another IPAM plugin, for example host-local"))
		return
	}
	var given struct {
		IPAM          map[string]json.RawMessage `json:"ipam"`
		RuntimeConfig map[string]json.RawMessage `json:"runtimeConfig"`
	}
	_ = json.Unmarshal(rawConfig(step), &given) // validation rejects a configuration that cannot be decoded
	v.refuseKeys(ipamPath, given.IPAM, append([]string{schema.AddressBlocks.Parameter},
		schema.AddressBlocks.Excludes...))
	v.refuseKeys(path.Child("config", "runtimeConfig"), given.RuntimeConfig, []string{"ips", runtimeRanges})
}

// refuseKeys rejects keys that set addresses in a configuration. It ignores case, because plugins that use Go's JSON
// package also ignore it. In runtimeConfig, these are the keys from the CNI conventions ("Dynamic Plugin specific
// fields").
func (v *validator) refuseKeys(path *field.Path, given map[string]json.RawMessage, keys []string) {
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if slices.ContainsFunc(keys, func(refused string) bool { return strings.EqualFold(refused, key) }) {
			v.add(field.Forbidden(path.Child(key), "the addresses come from the addressRange: remove it"))
		}
	}
}

// giveAddresses selects one of the node's AddressBlocks that has room for the claim, and adds the block's addresses to
// the configuration of the step's IPAM plugin.
func (c *compiler) giveAddresses(step *v1alpha1.Step, planned *PlanStep) {
	if step.AddressRange == "" {
		return
	}
	path := c.path.Index(slices.IndexFunc(c.topology.Spec.Steps, func(s v1alpha1.Step) bool {
		return s.Name == step.Name
	})).Child("addressRange")
	blocks := c.binding.Blocks[step.AddressRange]
	index := slices.IndexFunc(blocks, func(block BlockRoom) bool {
		return block.Room-c.taken[block.Name] >= c.binding.pods()
	})
	if index < 0 {
		c.add(field.Invalid(path, step.AddressRange, c.lacksAddresses(step.AddressRange, blocks)))
		return
	}
	block := blocks[index]
	c.taken[block.Name] += c.binding.pods()
	schema, _ := c.binding.Schemas.Lookup(IPAMType(planned.Config))
	config, err := withAddresses(planned.Config, schema.AddressBlocks, block.Families)
	if err != nil {
		c.add(field.InternalError(path, err))
		return
	}
	planned.Config = config
	planned.Range = &StepRange{Name: step.AddressRange, Block: block.Name, Size: block.Size}
}

// lacksAddresses returns the error message for a range whose blocks have no room, with a suggested fix.
func (c *compiler) lacksAddresses(name string, blocks []BlockRoom) string {
	hint := fmt.Sprintf("see the conditions of kubectl get addressrange %s -o yaml", name)
	if len(blocks) == 0 {
		return fmt.Sprintf("node %s has no block of AddressRange %s yet; the controller assigns one to each node that "+
			"the range selects, if the range exists (kubectl get addressrange): %s", c.binding.Node, name, hint)
	}
	size, largest, names := 0, 0, make([]string, 0, len(blocks))
	for _, block := range blocks {
		size, largest = size+block.Size, max(largest, block.Size)
		names = append(names, block.Name)
	}
	if pods := c.binding.pods(); pods > largest {
		return fmt.Sprintf("the claim is reserved for %d pods, which take addresses of one block, and the largest "+
			"one that node %s has of AddressRange %s has room for %d: give each pod its own claim "+
			"with a ResourceClaimTemplate, or use a range with a larger blockSize; %s",
			pods, c.binding.Node, name, largest, hint)
	}
	return fmt.Sprintf("claims of node %s use all %d addresses of its blocks of AddressRange %s (%s); the "+
		"controller assigns another block to the node if the range has one: %s", c.binding.Node, size, name,
		joinSome(names), hint)
}

// joinSome joins the first few names for a message and appends the number of remaining names.
func joinSome(names []string) string {
	const few = 4
	text := strings.Join(names[:min(few, len(names))], ", ")
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// withAddresses sets the addresses in an IPAM plugin's configuration.
func withAddresses(
	config json.RawMessage, form *v1alpha1.AddressBlocks, families []addresses.Family,
) (json.RawMessage, error) {
	lists := make([][]map[string]string, 0, len(families))
	for _, family := range families {
		runs := make([]map[string]string, 0, len(family.Runs))
		for _, run := range family.Runs {
			runs = append(runs, map[string]string{form.Network: family.Network.String(), form.First: run.First.String(),
				form.Last: run.Last.String()})
		}
		lists = append(lists, runs)
	}
	fields, ipam := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, fmt.Errorf("cannot read config: %w", err)
	}
	if err := json.Unmarshal(fields["ipam"], &ipam); err != nil {
		return nil, fmt.Errorf("cannot read config.ipam: %w", err)
	}
	ipam = maps.Clone(ipam)
	if err := set(ipam, form.Parameter, lists); err != nil {
		return nil, err
	}
	if err := set(fields, "ipam", ipam); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// Ranges returns the sorted names of the AddressRanges used by the steps of a topology.
func Ranges(topology *v1alpha1.NetworkTopology) []string {
	var names []string
	for i := range topology.Spec.Steps {
		if name := topology.Spec.Steps[i].AddressRange; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// RangeRemarks returns a remark for each AddressRange that a topology uses but that does not exist. Pods wait until the
// range exists. known contains the names of the ranges in the cluster.
func RangeRemarks(topology *v1alpha1.NetworkTopology, known []string) []string {
	var remarks []string
	for _, name := range Ranges(topology) {
		if slices.Contains(known, name) {
			continue
		}
		remarks = append(remarks, fmt.Sprintf("the cluster has no AddressRange %s, and pods wait for it", name))
	}
	return remarks
}

// AddressesPerPod returns the number of addresses of each family that one instance of a topology takes from an
// AddressRange for each pod.
func AddressesPerPod(topology *v1alpha1.NetworkTopology, addressRange string) int {
	count := 0
	for i := range topology.Spec.Steps {
		if topology.Spec.Steps[i].AddressRange == addressRange {
			count++
		}
	}
	return count
}

// TakenAddresses counts the addresses that plans take from each block for the given number of pods, and adds the counts
// to taken, by block name. If no pods are known yet, it assumes one pod, since one will use the claim later.
func TakenAddresses(plans []Plan, pods int, taken map[string]int) {
	for i := range plans {
		for j := range plans[i].Steps {
			if given := plans[i].Steps[j].Range; given != nil {
				taken[given.Block] += max(pods, 1)
			}
		}
	}
}
