package doctor

import "slices"

func checkServer(input *Input) []Finding {
	if input.Cluster.Problem != "" {
		return []Finding{{Level: Fail, What: "the API server is unreachable", Where: "--kubeconfig",
			Why: input.Cluster.Problem, Do: "pass a kubeconfig that works on this node"}}
	}
	found := checkVersion(compServer, input.Cluster.Version)
	for _, api := range []struct{ name, do string }{
		{"resource.k8s.io/v1", "upgrade to Kubernetes 1.36.2 or newer, or enable the group with --runtime-config"},
		{"networking.dra.io/v1alpha1", "kubectl apply -f deploy/crds"},
	} {
		if !slices.Contains(input.Cluster.Serves, api.name) {
			found = append(found, Finding{Level: Fail, What: "the API server does not serve " + api.name,
				Where: "API server " +
					input.Cluster.Version, Why: "the driver cannot publish devices without it", Do: api.do})
		}
	}
	return found
}

// WithCluster uses data that the caller has read from the API server to complete findings that were made without a
// kubeconfig, such as those from the driver's pod. cluster is nil if the caller has no data.
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
