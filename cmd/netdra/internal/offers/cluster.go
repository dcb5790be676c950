package offers

import (
	"context"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// askCluster reads the same data from the Node object as the driver does. It only sets the fields of the answers that
// the Node object contains.
func (f *Inputs) askCluster(ctx context.Context, deps osdeps.Deps) (*nodestate.Answers, error) {
	name, err := f.NodeName(deps)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot use kubeconfig %s: %w", f.Kubeconfig, exit.Cause(err))
	}
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot use kubeconfig %s: %w", f.Kubeconfig, exit.Cause(err))
	}
	node, err := client.Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot get node %s: %w; name it with --node, or leave --kubeconfig out", name, err)
	}
	answers := &nodestate.Answers{Inputs: nodestate.PolicyInputs{Node: name, Labels: node.Labels}}
	for _, address := range node.Status.Addresses {
		if parsed, err := netip.ParseAddr(address.Address); err == nil { // others are host names
			answers.State.Addresses = append(answers.State.Addresses, parsed)
		}
	}
	return answers, nil
}
