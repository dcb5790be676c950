package doctor

import (
	"fmt"
	"slices"
	"time"
)

// mostClock is how far clocks may be apart: tokens and certificates are judged by them.
const mostClock = 30 * time.Second

// checkOfClocks is the name of the check that only the node can make.
const checkOfClocks = "clock"

func clusterChecks() []check {
	return []check{
		{group: groupCluster, name: "api-server", fine: "the API server has what the driver needs", needs: needsCluster,
			inspect: checkServer},
		{group: groupCluster, name: "features", fine: "the features that the driver needs are on", needs: needsFeatures,
			inspect: checkFeatures},
		{group: groupCluster, name: checkOfClocks, fine: "the clocks of the node and of the API server agree",
			needs: needsAnswers, inspect: checkClock},
	}
}

// neededAPIs are by group/version.
func neededAPIs() []struct{ name, do string } {
	return []struct{ name, do string }{
		{"resource.k8s.io/v1", "upgrade to Kubernetes 1.36.2 or newer, or switch the group on with --runtime-config"},
		{"networking.dra.io/v1alpha1", "kubectl apply -f deploy/crds"},
	}
}

// features returns the feature gates that the driver needs, with the effect on devices without them. The API server's
// gates represent all components, since the usual installers set them equally.
func features() []struct{ name, effect string } {
	return []struct{ name, effect string }{
		{"DynamicResourceAllocation", "no claim is allocated"},
		{"DRAConsumableCapacity", "devices that pods share are not published"},
		{"DRAPartitionableDevices", "devices that exclude each other are not published"},
		{"DRADeviceTaints", "devices that should not be used now are published without a taint"},
		{"DRAResourceClaimDeviceStatus", "claims don't say what was attached"},
	}
}

func checkServer(input *Input) []Finding {
	if input.Cluster.Problem != "" {
		return []Finding{{Level: Fail, What: "the API server cannot be asked", Where: "--kubeconfig",
			Why: input.Cluster.Problem, Do: "give a kubeconfig that works on this node"}}
	}
	found := checkVersion(compServer, input.Cluster.Version)
	for _, api := range neededAPIs() {
		if !slices.Contains(input.Cluster.Serves, api.name) {
			found = append(found, Finding{Level: Fail, What: "the API server does not serve " + api.name,
				Where: "API server " +
					input.Cluster.Version, Why: "the driver publishes nothing without it", Do: api.do})
		}
	}
	return found
}

// needsFeatures describes what is missing to know features; empty if nothing is.
func needsFeatures(input *Input) string {
	if missing := needsAnswers(input); missing != "" {
		return missing
	}
	if !input.Cluster.KnowsFeatures {
		return "the kubeconfig gives no right to get /metrics of the API server"
	}
	return ""
}

func checkFeatures(input *Input) []Finding {
	var found []Finding
	for _, feature := range features() {
		if slices.Contains(input.Cluster.Off, feature.name) {
			found = append(found, Finding{
				Level: Fail, What: fmt.Sprintf("the feature %s is switched off", feature.name), Where: "API server " +
					input.Cluster.Version, Why: feature.effect,
				Do: "enable it in --feature-gates of all components",
			})
		}
	}
	return found
}

func checkClock(input *Input) []Finding {
	ahead := input.Cluster.Ahead
	if ahead.Abs() <= mostClock {
		return nil
	}
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	return []Finding{{
		Level: Warn, What: fmt.Sprintf("the API server's clock is %s %s this node's", ahead.Abs().Round(time.Second),
			direction), Where: "system clock",
		Why: "certificates and tokens are refused by a clock that is wrong, and times in logs mislead",
		Do:  "synchronise the clocks: chronyc tracking, or timedatectl",
	}}
}

// WithCluster completes the findings of a node without a kubeconfig, such as those of the driver's pod, with data that
// the caller read from the API server itself. Only the node can compare its clock with the API server's. cluster is nil
// if the caller has no data.
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
			finding.Why = "\"netdra doctor --kubeconfig FILE\" on the node looks at it"
			all = append(all, finding)
			continue
		}
		all = append(all, checks[i].findings(&Input{Cluster: cluster})...)
	}
	return all
}
