package doctor

import (
	"fmt"
	"slices"
	"time"
)

// maxClockSkew is the acceptable difference between clocks. Validating tokens and certificates requires synchronized
// clocks.
const maxClockSkew = 30 * time.Second

// checkOfClocks is the name of the clock check, which can only run on the node.
const checkOfClocks = "clock"

func clusterChecks() []check {
	return []check{
		{group: groupCluster, name: "api-server", fine: "the API server serves the APIs that the driver needs",
			needs: needsCluster, inspect: checkServer},
		{group: groupCluster, name: "features", fine: "the feature gates that the driver needs are enabled",
			needs: needsFeatures, inspect: checkFeatures},
		{group: groupCluster, name: checkOfClocks, fine: "the clocks of the node and of the API server agree",
			needs: needsAnswers, inspect: checkClock},
	}
}

// neededAPIs returns the API groups that the driver needs, as group/version, each with the fix if it is missing.
func neededAPIs() []struct{ name, do string } {
	return []struct{ name, do string }{
		{"resource.k8s.io/v1", "upgrade to Kubernetes 1.36.2 or newer, or enable the group with --runtime-config"},
		{"networking.dra.io/v1alpha1", "kubectl apply -f deploy/crds"},
	}
}

// features returns the feature gates that the driver needs, each with the effect on devices if it is disabled. The API
// server's gates are taken as representative of all components, since the usual installers configure them alike.
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
	if missing := needsAnswers(input); missing != "" {
		return missing
	}
	if !input.Cluster.KnowsFeatures {
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

func checkClock(input *Input) []Finding {
	ahead := input.Cluster.Ahead
	if ahead.Abs() <= maxClockSkew {
		return nil
	}
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	return []Finding{{
		Level: Warn, What: fmt.Sprintf("the API server's clock is %s %s this node's", ahead.Abs().Round(time.Second),
			direction), Where: "system clock",
		Why: "with a wrong clock, certificates and tokens are rejected, and timestamps in logs are misleading",
		Do:  "synchronize the clocks; check with chronyc tracking or timedatectl",
	}}
}

// WithCluster completes the findings from a node without a kubeconfig, such as those of the driver's pod, using data
// that the caller has read from the API server. Only the node can compare its clock with the API server's. cluster is
// nil if the caller has no data.
func WithCluster(findings []Finding, cluster *Cluster) []Finding {
	var all []Finding
	for _, finding := range findings {
		if finding.Group != groupCluster || finding.Level != Unknown {
			all = append(all, finding)
			continue
		}
		checks := clusterChecks()
		i := slices.IndexFunc(checks, func(c check) bool { return c.name == finding.Check })
		if cluster == nil || i < 0 || finding.Check == checkOfClocks {
			finding.Why = "run \"netdra doctor --kubeconfig FILE\" on the node to check it"
			all = append(all, finding)
			continue
		}
		all = append(all, checks[i].findings(&Input{Cluster: cluster})...)
	}
	return all
}
