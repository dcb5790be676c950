package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// preview says which machine is looked at, and with which policies: flags of the commands that show what would be published.
type preview struct {
	files, plugins []string
	from, node     string
	labels         map[string]string
	features       draslices.Features
	addresses      []netip.Addr
}

func (f *preview) addTo(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringArrayVarP(&f.files, "filename", "f", nil, `YAML file of DeviceExposurePolicies, or "-" for stdin; other kinds in it are left out`)
	set.StringVar(&f.from, "from", "", `directory with a recording of "netdra facts", in place of this machine`)
	set.Func("node-address", "address by which the cluster knows the node, one flag for each (default: what the driver of this node says)", func(text string) error {
		address, err := netip.ParseAddr(text)
		f.addresses = append(f.addresses, address)
		return err
	})
	set.StringVar(&f.node, "node", "", "name of the node (default: that of this machine, or of the recording's directory)")
	set.StringToStringVar(&f.labels, "node-labels", nil, "labels of the node, KEY=VALUE separated by commas, for policies with a nodeSelector")
	set.StringArrayVar(&f.plugins, "cni-plugin", nil, "file name of a CNI plugin that the node has; give one for each (default: all that policies name)")
	set.BoolVar(&f.features.ListAttributes, "list-attributes", false, "for a cluster with the feature DRAListTypeAttributes")
	set.BoolVar(&f.features.CompatibilityGroups, "compatibility-groups", false, "for a cluster with the feature DRADeviceCompatibilityGroups")
	_ = cmd.MarkFlagDirname("from") // the name of a flag that exists is no error
}

// decide reads the policies and the machine, and resolves them.
func (f *preview) decide(ctx context.Context, on machine, stdin io.Reader) (policy.Decision, error) {
	policies, err := readPolicies(f.files, stdin)
	if err != nil {
		return policy.Decision{}, err
	}
	facts, err := f.facts(ctx)
	if err != nil {
		return policy.Decision{}, err
	}
	if err := f.complete(on, policies); err != nil {
		return policy.Decision{}, err
	}
	decision := policy.Resolve(facts, policies, policy.Node{Name: f.node, Labels: f.labels})
	decision.Problems = append(mismatches(policies), decision.Problems...)
	return decision, nil
}

// facts are those of this machine or of the recording.
func (f *preview) facts(ctx context.Context) (discovery.Facts, error) {
	if f.from == "" {
		addresses := f.addresses
		if addresses == nil {
			addresses = nodeAddresses(ctx)
		}
		return readFacts(ctx, addresses)
	}
	recording, err := openRecording(f.from)
	if err != nil {
		return discovery.Facts{}, err
	}
	sources, err := recording.Sources()
	if err != nil {
		return discovery.Facts{}, fmt.Errorf("cannot use the recording: %w", err)
	}
	return discovery.Read(ctx, sources)
}

// complete sets what was not given.
func (f *preview) complete(on machine, policies []policyapi.DeviceExposurePolicy) error {
	switch {
	case f.node != "":
	case f.from != "":
		dir, err := filepath.Abs(f.from)
		if err != nil {
			return err
		}
		f.node = filepath.Base(dir)
	default:
		name, err := on.hostname()
		if err != nil {
			return err
		}
		f.node = strings.ToLower(name) // as the kubelet does
	}
	f.features.CNIBinaries, f.features.MovingCNIs = sets.New(f.plugins...), sets.New(cnichain.DefaultSchemas().Moving()...)
	for i := range policies {
		if e := policies[i].Spec.Exposure; e != nil && f.plugins == nil {
			for _, plugin := range e.SupportedCNIPlugins {
				f.features.CNIBinaries.Insert(plugin.Name)
			}
		}
	}
	return nil
}
