package doctor

import (
	"time"

	"k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// clusterLimit is the time limit for each request to the API server.
const clusterLimit = 15 * time.Second

// ReadCluster queries an API server for the features that a node needs. It never fails: an unreachable API server
// becomes a finding. The kubeconfig may be the kubelet's own, so ReadCluster only reads versions and API groups, which
// every authenticated client is allowed to read.
func ReadCluster(kubeconfig string) *Cluster {
	cluster, err := remote.Connect(remote.Access{Kubeconfig: kubeconfig})
	if err != nil {
		return &Cluster{Problem: err.Error()}
	}
	return QueryCluster(cluster.Config)
}

// QueryCluster is like [ReadCluster], but the caller provides the client configuration.
func QueryCluster(shared *restclient.Config) *Cluster {
	found, config := &Cluster{}, restclient.CopyConfig(shared)
	config.Timeout = clusterLimit
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err == nil {
		err = readVersion(client, found)
	}
	if err != nil {
		found.Problem = err.Error()
	}
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
