package status

import (
	"errors"
	"fmt"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// PrepareHint returns the suggested next step, usually a diagnostic command, for a claim that could not be prepared.
func PrepareHint(claim cnichain.Claim, err error) string {
	var hostNetwork *claimspec.HostNetworkError
	if errors.As(err, &hostNetwork) {
		return "Kubernetes cannot change either in an existing pod: change its manifest or template, and delete the pod"
	}
	return fmt.Sprintf(`run "kubectl netdra explain claim/%s -n %s" to see its devices and their users`, claim.Name,
		claim.Namespace)
}

// attachHint returns a diagnostic command for a failed attempt to attach a pod or a claim. object is pod/NAME or
// claim/NAME. The command depends on the cause: it shows the plugin calls if a plugin failed, but there are none to
// show if the failure occurred before the first call.
func attachHint(object, namespace, node string, err error) string {
	var step *executor.StepError
	if !errors.As(err, &step) {
		return fmt.Sprintf(`"kubectl netdra claims %s -n %s" shows what it waits for`, object, namespace)
	}
	hint := fmt.Sprintf(`run "kubectl netdra trace %s -n %s" to list all calls`, object, namespace)
	if kernel := executor.KernelHint(err, node); kernel != "" {
		hint = kernel + "; " + hint
	}
	return hint
}

// lostHint returns a command that shows the remaining interfaces of a pod or claim that has lost an interface. There is
// no plugin call to inspect in this case.
func lostHint(object, namespace string) string {
	return fmt.Sprintf(`run "kubectl netdra claims %s -n %s" to list the remaining ones`, object, namespace)
}
