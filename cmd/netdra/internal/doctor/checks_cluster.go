package doctor

import (
	"fmt"
	"slices"
)

// neededAPIs returns the API groups that the driver needs, as group/version, each with the fix if it is missing.
func neededAPIs() []struct{ name, do string } {
	return []struct{ name, do string }{
		{"resource.k8s.io/v1", "upgrade to Kubernetes 1.36.2 or newer, or enable the group with --runtime-config"},
		{"networking.dra.io/v1alpha1", "kubectl apply -f deploy/crds"},
	}
}

// features returns the feature gates that the driver needs, each with the effect on devices if the gate is disabled.
// The API server's gates are taken as representative of all components, since the usual installers configure all
// components alike.
func features() []struct{ name, effect string } {
	return []struct{ name, effect string }{
		{"DynamicResourceAllocation", "no claim can be allocated"},
		{"DRAConsumableCapacity", "devices that pods share are not published"},
		{"DRAPartitionableDevices", "mutually exclusive devices are not published"},
		{"DRADeviceTaints", "devices that must not be used are published without a taint"},
		{"DRAResourceClaimDeviceStatus", "the status of claims does not contain the attached interfaces"},
	}
}

func checkServer(input *Input) []Finding {
	if input.Cluster.Problem != "" {
		return []Finding{{Level: Fail, What: "the API server is unreachable", Where: "--kubeconfig",
			Why: input.Cluster.Problem, Do: "pass a kubeconfig that works on this node"}}
	}
	found := checkVersion(compServer, input.Cluster.Version)
	for _, api := range neededAPIs() {
		if !slices.Contains(input.Cluster.Serves, api.name) {
			found = append(found, Finding{Level: Fail, What: "the API server does not serve " + api.name,
				Where: "API server " +
					input.Cluster.Version, Why: "the driver cannot publish devices without it", Do: api.do})
		}
	}
	return found
}

// needsFeatures returns why the feature gates are unknown; empty if they are known.
func needsFeatures(input *Input) string {
	switch {
	case input.Cluster == nil:
		return needsCluster(input)
	case input.Cluster.Problem != "":
		return "the API server is unreachable"
	case !input.Cluster.KnowsFeatures:
		return "the kubeconfig has no permission to get /metrics of the API server"
	}
	return ""
}

func checkFeatures(input *Input) []Finding {
	var found []Finding
	for _, feature := range features() {
		if slices.Contains(input.Cluster.Off, feature.name) {
			found = append(found, Finding{
				Level: Fail, What: fmt.Sprintf("the feature gate %s is disabled", feature.name), Where: "API server " +
					input.Cluster.Version, Why: feature.effect,
				Do: "enable it in --feature-gates of all components",
			})
		}
	}
	return found
}

// WithCluster completes findings that were made without a kubeconfig, such as those from the driver's pod, using data
// that the caller has read from the API server. cluster is nil if the caller has no data.
func WithCluster(findings []Finding, cluster *Cluster) []Finding {
	var all []Finding
	for _, finding := range findings {
		i := slices.IndexFunc(checks(), func(c check) bool { return c.group == groupCluster && c.name == finding.Check })
		switch {
		case i < 0 || finding.Level != Unknown:
			all = append(all, finding)
		case cluster == nil:
			finding.Why = "run \"netdra doctor --kubeconfig FILE\" on the node to check it"
			all = append(all, finding)
		default:
			all = append(all, checks()[i].findings(&Input{Cluster: cluster})...)
		}
	}
	return all
}
