package offers

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Inputs says which machine is looked at, and with which policies: flags of the commands that show what would be published.
type Inputs struct {
	Files, Plugins  []string
	Recording, Node string
	Labels          map[string]string
	Features        draslices.Features
	Addresses       []netip.Addr
}

// resolve reads the policies and the machine, and resolves them.
func (f *Inputs) resolve(ctx context.Context, deps osdeps.Deps, stdin io.Reader) (policy.Decision, error) {
	policies, err := manifest.ReadPolicies(f.Files, stdin)
	if err != nil {
		return policy.Decision{}, err
	}
	facts, err := f.Facts(ctx)
	if err != nil {
		return policy.Decision{}, err
	}
	if err := f.Complete(deps, policies); err != nil {
		return policy.Decision{}, err
	}
	decision := policy.Resolve(facts, policies, policy.Node{Name: f.Node, Labels: f.Labels})
	decision.Problems = append(manifest.TypeMismatches(policies), decision.Problems...)
	return decision, nil
}

// Facts are those of this machine or of the recording.
func (f *Inputs) Facts(ctx context.Context) (discovery.Facts, error) {
	if f.Recording == "" {
		addresses := f.Addresses
		if addresses == nil {
			addresses = nodeclient.DriverAddresses(ctx, nodeclient.DefaultSocket())
		}
		return osdeps.ReadFacts(ctx, addresses)
	}
	recording, err := openRecording(f.Recording)
	if err != nil {
		return discovery.Facts{}, err
	}
	sources, err := recording.Sources()
	if err != nil {
		return discovery.Facts{}, fmt.Errorf("cannot use the recording: %w", err)
	}
	return discovery.Read(ctx, sources)
}

// Complete sets what was not given.
func (f *Inputs) Complete(deps osdeps.Deps, policies []policyapi.DeviceExposurePolicy) error {
	switch {
	case f.Node != "":
	case f.Recording != "":
		dir, err := filepath.Abs(f.Recording)
		if err != nil {
			return err
		}
		f.Node = filepath.Base(dir)
	default:
		name, err := deps.Hostname()
		if err != nil {
			return err
		}
		f.Node = strings.ToLower(name) // as the kubelet does
	}
	f.Features.CNIBinaries, f.Features.MovingCNIs = sets.New(f.Plugins...), sets.New(cnichain.DefaultSchemas().Moving()...)
	for i := range policies {
		if e := policies[i].Spec.Exposure; e != nil && f.Plugins == nil {
			for _, plugin := range e.SupportedCNIPlugins {
				f.Features.CNIBinaries.Insert(plugin.Name)
			}
		}
	}
	return nil
}
