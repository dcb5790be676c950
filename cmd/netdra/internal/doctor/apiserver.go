package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// clusterLimit is the time limit for each request to the API server.
const clusterLimit = 15 * time.Second

// ReadCluster queries an API server for the features that a node needs. It never fails: an unreachable API server is
// reported as a finding. The kubeconfig may be the kubelet's own, so ReadCluster only reads versions and API groups,
// which every authenticated client may read.
func ReadCluster(ctx context.Context, kubeconfig string) *Cluster {
	cluster, err := remote.Connect(remote.Access{Kubeconfig: kubeconfig})
	if err != nil {
		return &Cluster{Problem: err.Error()}
	}
	return QueryCluster(ctx, cluster.Config)
}

// QueryCluster is like [ReadCluster], but the caller provides the client configuration.
func QueryCluster(ctx context.Context, shared *restclient.Config) *Cluster {
	found, config := &Cluster{}, restclient.CopyConfig(shared)
	config.Timeout = clusterLimit
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err == nil {
		err = readVersion(client, found)
	}
	if err != nil {
		found.Problem = err.Error()
		return found
	}
	found.Off, found.KnowsFeatures = featuresOff(ctx, client.RESTClient())
	return found
}

func readVersion(client *discovery.DiscoveryClient, found *Cluster) error {
	info, err := client.ServerVersion()
	if err != nil {
		return err
	}
	found.Version = info.GitVersion
	groups, err := client.ServerGroups()
	if err != nil {
		return err
	}
	for i := range groups.Groups {
		for _, version := range groups.Groups[i].Versions {
			found.Serves = append(found.Serves, version.GroupVersion)
		}
	}
	return nil
}

// featuresOff returns the feature gates that the API server's metrics report as disabled. known is false if the client
// (for example, the kubelet) is not permitted to read the metrics. All Kubernetes components expose this metric
// (component-base, metrics/prometheus/feature); the scheduler's metrics, which matter most, are not reachable from a
// node.
func featuresOff(ctx context.Context, client restclient.Interface) (off []string, known bool) {
	metrics, err := client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, false
	}
	return parseFeatures(string(metrics)), strings.Contains(string(metrics), featureMetric)
}

// featureMetric is the prefix of the metric lines that report whether a feature is enabled.
const featureMetric = "kubernetes_feature_enabled{"

// parseFeatures returns the disabled features. It matches lines such as
// kubernetes_feature_enabled{name="DRADeviceTaints",stage="BETA"} 0.
func parseFeatures(metrics string) []string {
	var off []string
	for line := range strings.Lines(metrics) {
		labels, found := strings.CutPrefix(line, featureMetric)
		if !found || !strings.HasSuffix(strings.TrimSpace(labels), " 0") {
			continue
		}
		_, name, _ := strings.Cut(labels, `name="`)
		name, _, _ = strings.Cut(name, `"`)
		off = append(off, name)
	}
	slices.Sort(off)
	return off
}
