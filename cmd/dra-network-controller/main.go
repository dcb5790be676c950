package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryapi "k8s.io/api/discovery/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/blocks"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/contract"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/endpoints"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/exposure"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/topology"
	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

type options struct {
	kubeconfig           string
	leaderElect          bool
	leaderElectNamespace string
	healthAddress        string
	metricsAddress       string
	listAttributes       bool
	serviceEndpoints     bool
	webhook              webhookOptions
}

// main runs the command until the first signal. On a second signal, SetupSignalHandler exits the process.
func main() {
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "dra-network-controller:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "dra-network-controller",
		Short: "Manage DeviceClasses and node address blocks, and validate topologies and policies",
		Long: `Create one DeviceClass for each root step of every NetworkTopology and keep it up to date. Report errors
of NetworkTopologies and DeviceExposurePolicies in their status and, if enabled, through a webhook. Assign blocks of
AddressRanges to nodes, and release the blocks of deleted nodes. If enabled, write EndpointSlices for annotated
Services. One instance, the leader, does this for the whole cluster; all instances serve the webhook.`,
		Example: `  # In the cluster, with several replicas, one of them the leader:
  dra-network-controller --leader-elect --health-probe-bind-address=:9682

  # On a workstation, for the cluster of a kubeconfig file, with metrics on http://127.0.0.1:9683/metrics:
  dra-network-controller --kubeconfig ~/.kube/config --metrics-bind-address 127.0.0.1:9683 -v 4

  # With the webhook, as in deploy/: the controller creates the certificate and registers its authority
  dra-network-controller --leader-elect --webhook-bind-address :9684 \
    --webhook-certificate-secret dra-network/dra-network-controller-webhook

  # With the webhook, using a certificate and a ValidatingWebhookConfiguration that you manage:
  dra-network-controller --leader-elect --webhook-cert-dir /etc/webhook --webhook-bind-address :9684`,
		Version:       version.Get().Describe(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return run(c, o) },
	}
	flags := c.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, else the pod's service "+
		"account)")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "run only while holding the lease dra-network-controller")
	flags.StringVar(&o.leaderElectNamespace, "leader-elect-namespace", "",
		"namespace of the lease (default: the pod's own)")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", "127.0.0.1:9682",
		"address of /healthz and /readyz; a pod without host network needs :9682 so that the kubelet can reach it; "+
			"0 disables it")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "0",
		"address of /metrics, for example 127.0.0.1:9683; 0 disables it")
	o.webhook.addFlags(flags)
	flags.BoolVar(&o.listAttributes, "list-attributes", false,
		"create DeviceClasses that read the list of CNI plugins; needs the feature gate DRAListTypeAttributes on all "+
			"components and the same option on all nodes")
	flags.BoolVar(&o.serviceEndpoints, "service-endpoints", false,
		"write EndpointSlices for Services with the annotation "+endpoints.AnnotationTopology+
			"; caches a few fields of every pod in memory")
	// Of klog's flags, only the one for verbosity is added: the others configure log files, which are not used in a
	// container.
	logging := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logging)
	flags.AddGoFlag(logging.Lookup("v"))
	return c
}

func run(c *cobra.Command, o *options) error {
	ctrl.SetLogger(klog.NewKlogr())
	if err := o.webhook.validate(); err != nil {
		return err
	}
	config, err := kubeconfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot load the cluster configuration: %w; outside of a pod, set --kubeconfig", err)
	}
	manager, err := newManager(config, o)
	if err != nil {
		return err
	}
	if err := o.webhook.serve(manager); err != nil {
		return err
	}
	reconcilers := []interface{ SetupWithManager(ctrl.Manager) error }{
		&topology.Reconciler{
			Client: manager.GetClient(), Live: manager.GetAPIReader(), CheckSelector: policy.CheckClassSelector,
			Events: manager.GetEventRecorder("dra-network-controller"), ListAttributes: o.listAttributes,
		},
		&blocks.Reconciler{
			Client: manager.GetClient(), Live: manager.GetAPIReader(), Clock: clock.RealClock{}, Elapsed: elapsed(),
			Events: manager.GetEventRecorder("dra-network-controller"),
		},
		exposure.Reconciler(manager.GetClient()),
		&exposure.Counter{Client: manager.GetClient()},
		contract.Reconciler(manager.GetClient()),
	}
	if o.serviceEndpoints {
		reconcilers = append(reconcilers, &endpoints.Reconciler{Client: manager.GetClient(),
			Live: manager.GetAPIReader(), Events: manager.GetEventRecorder("dra-network-controller")})
	}
	// Start starts the controllers after their caches have been synced.
	for _, reconciler := range reconcilers {
		if err := reconciler.SetupWithManager(manager); err != nil {
			return fmt.Errorf("cannot set up a controller: %w", err)
		}
	}
	return manager.Start(c.Context())
}

// kubeconfig loads the configuration in the same way as kubectl: from the file, $KUBECONFIG, or the pod's service
// account.
func kubeconfig(path string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	// The controllers never have more than a handful of requests in flight, and the API server has its own flow
	// control. With the client's default limit of 20 requests per second, hundreds of topologies would have to wait for
	// minutes.
	config.QPS = -1
	return config, nil
}

// newManager creates the manager and restricts its cache: objects are stripped before they are stored, and only
// EndpointSlices that this controller manages are listed. Otherwise, memory usage would grow with the size of every
// object that users create. The informers stream the initial list object by object (WatchList), so the complete list is
// never held in memory.
func newManager(config *rest.Config, o *options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), topologyapi.AddToScheme(scheme),
		policyapi.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("cannot register the API types: %w", err)
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "dra-network-controller",
		LeaderElectionNamespace:       o.leaderElectNamespace,
		LeaderElectionReleaseOnCancel: true, // the process exits when Start returns
		HealthProbeBindAddress:        o.healthAddress,
		Metrics:                       server.Options{BindAddress: o.metricsAddress},
		Cache: cache.Options{DefaultTransform: strip, ByObject: map[client.Object]cache.ByObject{
			&resourceapi.ResourceClaim{}: {Transform: blocks.Transform},
			&resourceapi.ResourceSlice{}: {
				Field:     fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorDriver, policyapi.AttributeDomain),
				Transform: exposure.Transform,
			},
			&corev1.Pod{}:     {Transform: endpoints.TransformPod},
			&corev1.Service{}: {Transform: endpoints.TransformService},
			&discoveryapi.EndpointSlice{}: {
				Label: labels.SelectorFromSet(labels.Set{discoveryapi.LabelManagedBy: endpoints.ManagedBy}),
			},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot set up the controller manager: %w", err)
	}
	if err := errors.Join(manager.AddHealthzCheck("ping", healthz.Ping),
		manager.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, fmt.Errorf("cannot register the health checks: %w; report this as a bug", err)
	}
	return manager, nil
}

// strip removes managed fields, which the controller does not read. It also removes annotations from metadata-only
// objects, because the controller only reads the labels of nodes.
func strip(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	if partial, ok := object.(*metav1.PartialObjectMetadata); ok {
		partial.Annotations = nil
	}
	return object, nil
}

// elapsed returns a function that returns the time since elapsed was called. The function reads the monotonic clock,
// which is not affected when the wall clock is adjusted (see package time).
func elapsed() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
