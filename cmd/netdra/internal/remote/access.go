package remote

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
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
	// DefaultDriverNamespace is the namespace that the chart and the manifests use.
	DefaultDriverNamespace = "dra-network"
	// podSelector selects the driver's pods.
	podSelector = "app.kubernetes.io/name=dra-network-driver"
	// container is the name of the driver's container, and program is the path of netdra in its image.
	container, program = "driver", "/netdra"
	// role is the name of the ClusterRole and Role in the chart that grant the required permissions.
	role = "dra-network-netdra"
)

// Access selects a cluster and namespaces. Empty fields have the same defaults as in kubectl.
type Access struct {
	Kubeconfig, Context string
	// Namespace is the namespace for objects without one; if empty, the context's namespace is used.
	Namespace string
	// DriverNamespace is the namespace of the driver's pods.
	DriverNamespace string
}

// Streamer runs a command in a pod's container. If the exit status is not 0, the error is from
// k8s.io/client-go/util/exec. Tests replace Streamer, since package remotecommand needs a real kubelet.
type Streamer func(ctx context.Context, pod *corev1.Pod, command []string, stdout, stderr io.Writer) error

// Cluster is a connection to a cluster with the caller's permissions.
type Cluster struct {
	Core     corev1client.CoreV1Interface
	Resource resourcev1client.ResourceV1Interface
	// Raw gets a path from the API server. It returns the API server's error, for example if a permission is missing.
	Raw    func(ctx context.Context, path string) ([]byte, error)
	Stream Streamer
	// Config is the connection's configuration, for callers that need other clients.
	Config    *rest.Config
	Namespace string
	// DriverNamespace is the namespace of the driver's pods.
	DriverNamespace string
	// Patience is the time limit per node if several nodes are queried; 0 means five minutes.
	Patience time.Duration
}

// Connect reads the kubeconfig, which it locates in the same way as kubectl. It does not send any requests yet.
func Connect(access Access) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if files := filepath.SplitList(access.Kubeconfig); len(files) > 1 { // as in $KUBECONFIG
		rules.Precedence = files
	} else {
		rules.ExplicitPath = access.Kubeconfig
	}
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{
		CurrentContext: access.Context, Context: clientcmdapi.Context{Namespace: access.Namespace}})
	config, err := loading.ClientConfig()
	switch {
	case err != nil && access.Kubeconfig == "": // kubectl's default files
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
		Core: core, Resource: resource, Namespace: namespace, Config: config,
		DriverNamespace: cmp.Or(access.DriverNamespace, DefaultDriverNamespace),
		Raw: func(ctx context.Context, path string) ([]byte, error) {
			result := core.RESTClient().Get().RequestURI(path).Do(ctx)
			if err := result.Error(); err != nil { // the error from Raw would contain "unknown" instead
				return nil, err
			}
			return result.Raw()
		},
		Stream: streamer(config, core.RESTClient()),
	}, nil
}

// streamer calls pods/exec over WebSockets, which all supported Kubernetes versions provide.
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

// denied returns an error that names the permission that the caller lacks.
func (c *Cluster) denied(verb string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot %s: %w; request a binding of the ClusterRole and the Role %s in namespace %s", verb,
			err, role, c.DriverNamespace)
	}
	return fmt.Errorf("cannot %s: %w", verb, err)
}
