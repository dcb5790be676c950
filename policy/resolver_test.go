package policy_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/dra-networking/dra-network-driver/policy"
)

// A Resolver makes the same decisions as a new Resolver, regardless of the decisions it has made before.
func TestAResolverDecidesLikeANewOne(t *testing.T) {
	const (
		all   = "selector: {cel: 'true'}" + exposed
		named = `selector: {cel: 'device.attributes["dra.networking"].ifName == "link0001"'}` + exposed
		wrong = `selector: {cel: 'device.attributes["dra.networking"].ifName ='}` + exposed
		// This policy uses the text of a selector for a computed attribute as well, which is compiled differently.
		both = "selector: {cel: 'true'}\nexposure: {supportedCNIPlugins: [{name: host-device, exclusive: true}], " +
			"computedAttributes: [{name: rail, cel: 'true'}]}"
		idle = `selector: {cel: 'device.attributes["dra.networking"].pfName == "link0001"'}` + exposed
	)
	node, facts := policy.Node{Name: "n"}, links(3)
	var resolver policy.Resolver
	for i, texts := range []map[string]string{
		{"a": all}, {"a": all}, {"a": named, "b": idle}, {"a": named, "b": idle}, {"a": wrong}, {"a": wrong, "b": all},
		{}, {"a": both}, {"a": both, "b": all}, {"a": named},
	} {
		list := policies(t, texts)
		got, err := resolver.Resolve(t.Context(), facts, list, node)
		if err != nil {
			t.Fatal(err)
		}
		if want := policy.Resolve(facts, list, node); !reflect.DeepEqual(got, want) {
			t.Errorf("decision %d, for %v, is\n%+v\nthat of a new Resolver is\n%+v", i, slices.Sorted(maps.Keys(texts)),
				got, want)
		}
	}
}
