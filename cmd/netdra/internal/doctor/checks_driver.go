package doctor

import (
	"fmt"
	"strings"
)

// checkAnswers distinguishes between a driver that is starting, a driver that does not answer, and a driver that is not
// running. While the driver is waiting for its caches, the readiness probe already answers, but the socket does not.
func checkAnswers(input *Input) []Finding {
	switch {
	case input.Driver != nil:
		return nil
	case input.Ready != "":
		return []Finding{{
			Level: Fail, What: "the driver is running but not operational yet", Where: input.Settings.PluginDir,
			Why: input.Ready,
			Do:  "fix the reported cause; for details: kubectl -n dra-network logs daemonset/dra-network-driver",
		}}
	case input.process("dra-network-driver") != nil:
		return []Finding{{
			Level: Fail, What: "the driver is running but does not answer", Where: input.Settings.PluginDir,
			Why: input.Silence,
			Do:  "run doctor as root, with --socket if the driver has another --plugin-dir; check the driver's log",
		}}
	}
	return []Finding{{
		Level: Fail, What: "the driver is not running on this node", Where: input.Settings.PluginDir,
		Why: input.Silence,
		Do: "check with kubectl -n dra-network get pods -o wide whether it has a pod for this node, and why the pod " +
			"is not running",
	}}
}

func checkReady(input *Input) []Finding {
	if len(input.Driver.State.NotReady) == 0 {
		return nil
	}
	return []Finding{{
		Level: Fail, What: "the driver is not ready", Where: "/readyz", Why: strings.Join(input.Driver.State.NotReady,
			"; "),
		Do: "if it has just started, wait a few seconds; otherwise check the logs of the kubelet and the container " +
			"runtime",
	}}
}

// checkNodeName compares the driver's node name with the kubelet's --hostname-override. Without this flag, the check
// cannot detect a mismatch, because a cloud provider may have set a different name.
func checkNodeName(input *Input) []Finding {
	state := &input.Driver.State
	if !state.NodeFound {
		return []Finding{{
			Level: Fail, What: fmt.Sprintf("the cluster has no node %q",
				state.Node), Where: "--node-name of the driver",
			Why: "the driver cannot publish devices for a node that does not exist", Do: "set it to the name that " +
				"kubectl get nodes shows for this machine",
		}}
	}
	if input.Kubelet == nil || input.Kubelet.NodeName == "" || strings.EqualFold(input.Kubelet.NodeName, state.Node) {
		return nil
	}
	return []Finding{{
		Level: Fail, What: fmt.Sprintf("the driver uses the node name %q, but the kubelet uses %q", state.Node,
			input.Kubelet.NodeName), Where: "--node-name of the driver",
		Why: "this machine's devices are offered as those of another node", Do: "set it to the kubelet's " +
			"name, as the DaemonSet does with spec.nodeName",
	}}
}

// checkJournal finds unreadable journals, which the driver has renamed. Lost data cannot be recovered.
func checkJournal(input *Input) []Finding {
	var found []Finding
	for _, path := range input.SetAside {
		found = append(found, Finding{
			Level: Warn, What: "a journal could not be read and was set aside", Where: path,
			Why: "its records are lost: devices of ended pods may not be restored, and IP addresses may stay allocated",
			Do:  "check the disk for errors and the devices with netdra devices, then remove the file",
		})
	}
	return found
}
