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
	// DefaultDriverNamespace is the namespace of the chart and of the manifests.
	DefaultDriverNamespace = "dra-network"
	// podSelector selects the driver's pods.
	podSelector = "app.kubernetes.io/name=dra-network-driver"
	// container is the driver's in its pod, and program the path of netdra in its image.
	container, program = "driver", "/netdra"
	// role is the role in the chart with the permissions for Exec.
	role = "dra-network-netdra"
)

// Access is how the caller reaches a cluster; empty fields are as kubectl has them.
type Access struct {
	Kubeconfig, Context string
	// Namespace is the namespace of objects without one; empty: that of the context.
	Namespace string
	// DriverNamespace is where the driver's pods are.
	DriverNamespace string
}

// Streamer runs a command in a container of a pod. The error of a command that ended with another exit status than 0 is
// one of k8s.io/client-go/util/exec. Tests replace it, since package remotecommand needs a real kubelet.
type Streamer func(ctx context.Context, pod *corev1.Pod, command []string, stdout, stderr io.Writer) error

// Cluster is one, with the rights of the caller.
type Cluster struct {
	Core     corev1client.CoreV1Interface
	Resource resourcev1client.ResourceV1Interface
	// Raw gets a path of the API server.
	Raw    func(ctx context.Context, path string) ([]byte, error)
	Stream Streamer
	// Config is how the API server is asked, for who asks for more than this package does.
	Config    *rest.Config
	Namespace string
	// DriverNamespace is where the driver's pods are.
	DriverNamespace string
	// Patience is how long each of several nodes may take; 0 for five minutes.
	Patience time.Duration
}

// ConfigError is the error of an unusable kubeconfig file; an empty name stands for kubectl's files.
func ConfigError(kubeconfig string, err error) error {
	if kubeconfig == "" {
		return fmt.Errorf("cannot find the cluster: %w; name a file with --kubeconfig", err)
	}
	return fmt.Errorf("cannot use kubeconfig %s: %w; name another file with --kubeconfig", kubeconfig, exit.Cause(err))
}

// Connect reads the kubeconfig; it sends nothing yet. Fields of Access are as flags of kubectl, and its files are
// looked for as kubectl does.
func Connect(access Access) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if files := filepath.SplitList(access.Kubeconfig); len(files) > 1 { // as $KUBECONFIG may have
		rules.Precedence = files
	} else {
		rules.ExplicitPath = access.Kubeconfig
	}
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{
		CurrentContext: access.Context, Context: clientcmdapi.Context{Namespace: access.Namespace}})
	config, err := loading.ClientConfig()
	if err != nil {
		return nil, ConfigError(access.Kubeconfig, err)
	}
	config.UserAgent = "netdra"
	namespace, _, err := loading.Namespace()
	if err != nil {
		return nil, fmt.Errorf("cannot find the namespace of the context: %w; give --namespace", err)
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
			return GetRaw(ctx, core.RESTClient(), path)
		},
		Stream: streamer(config, core.RESTClient()),
	}, nil
}

// GetRaw gets a path of the API server, which may have a query. It returns the API server's error, such as a missing
// permission; the error of Result.Raw would have "unknown" instead.
func GetRaw(ctx context.Context, client rest.Interface, path string) ([]byte, error) {
	result := client.Get().RequestURI(path).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// streamer calls pods/exec with WebSockets, which every Kubernetes that the driver runs on has.
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

// denied returns an error with the permission that the caller lacks.
func (c *Cluster) denied(verb string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot %s: %w; ask for the ClusterRole and the Role %s in namespace %s", verb, err, role,
			c.DriverNamespace)
	}
	return fmt.Errorf("cannot %s: %w", verb, err)
}
