package remote

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	resourcev1client "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
)

const (
	// DefaultDriverNamespace is the namespace used in the chart and the manifests.
	DefaultDriverNamespace = "dra-network"
	// podSelector selects the driver's pods.
	podSelector = "app.kubernetes.io/name=dra-network-driver"
	// container is the name of the driver's container, and program is the path of netdra in the container image.
	container, program = "driver", "/netdra"
	// role is the name of the ClusterRole and the Role in the chart that grant the required permissions.
	role = "dra-network-netdra"
)

// Access selects a cluster and namespaces. Empty fields have the same defaults as in kubectl.
type Access struct {
	Kubeconfig, Context string
	// Namespace is the namespace of objects that do not specify one. If it is empty, the context's namespace is used.
	Namespace string
	// DriverNamespace is the namespace of the driver's pods.
	DriverNamespace string
}

// Streamer runs a command in a pod's container. If the exit status is not 0, it returns an error of a type from
// k8s.io/client-go/util/exec. Tests replace it, because package remotecommand needs a real kubelet.
type Streamer func(ctx context.Context, pod *corev1.Pod, command []string, stdout, stderr io.Writer) error

// Cluster is a connection to a cluster that uses the caller's permissions.
type Cluster struct {
	Core     corev1client.CoreV1Interface
	Resource resourcev1client.ResourceV1Interface
	// Raw reads a path from the API server. If the request fails, for example because the caller lacks permission, it
	// returns the API server's error.
	Raw       func(ctx context.Context, path string) ([]byte, error)
	Stream    Streamer
	Namespace string
	// DriverNamespace is the namespace of the driver's pods.
	DriverNamespace string
	// Patience is the time limit per node when several nodes are queried; 0 means five minutes.
	Patience time.Duration
}

// Connect reads the kubeconfig, which it finds in the same way as kubectl. It does not send any requests yet.
func Connect(access Access) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = access.Kubeconfig
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{
		CurrentContext: access.Context, Context: clientcmdapi.Context{Namespace: access.Namespace}})
	config, err := loading.ClientConfig()
	switch {
	case err != nil && access.Kubeconfig == "": // read from kubectl's default files
		return nil, fmt.Errorf("cannot find the cluster: %w; name a file with --kubeconfig", err)
	case err != nil:
		return nil, fmt.Errorf("cannot use kubeconfig %s: %w; name another file with --kubeconfig", access.Kubeconfig,
			exit.Cause(err))
	}
	config.UserAgent = "netdra"
	namespace, _, err := loading.Namespace()
	if err != nil {
		return nil, fmt.Errorf("cannot find the namespace of the context: %w; set --namespace", err)
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	resource, err := resourcev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	return &Cluster{
		Core: core, Resource: resource, Namespace: namespace,
		DriverNamespace: cmp.Or(access.DriverNamespace, DefaultDriverNamespace),
		Raw: func(ctx context.Context, path string) ([]byte, error) {
			result := core.RESTClient().Get().RequestURI(path).Do(ctx)
			if err := result.Error(); err != nil { // otherwise, the error from Raw would contain "unknown"
				return nil, err
			}
			return result.Raw()
		},
		Stream: streamer(config, core.RESTClient()),
	}, nil
}

// streamer calls pods/exec over WebSockets, which are available in all supported versions of Kubernetes.
func streamer(config *rest.Config, client rest.Interface) Streamer {
	return func(ctx context.Context, pod *corev1.Pod, command []string, stdout, stderr io.Writer) error {
		url := client.Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true},
				scheme.ParameterCodec).URL()
		executor, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
		if err != nil {
			return err
		}
		return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr})
	}
}

// denied returns an error that names the permission missing for the caller.
func (c *Cluster) denied(verb string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot %s: %w; request a binding of the ClusterRole and the Role %s in namespace %s", verb,
			err, role, c.DriverNamespace)
	}
	return fmt.Errorf("cannot %s: %w", verb, err)
}
