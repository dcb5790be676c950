package doctor

import (
	"fmt"
	"strings"
)

func driverChecks() []check {
	return []check{
		{group: groupDriver, name: "driver-answers", fine: "the driver runs and answers", look: checkAnswers},
		{group: groupDriver, name: "driver-ready", fine: "the driver is ready: pods with claims can start", needs: needsDriver, look: checkReady},
		{group: groupDriver, name: "node-name", fine: "the driver works for this node", needs: needsCaches, look: checkNodeName},
		{group: groupDriver, name: "journal", fine: "the journal was never damaged", look: checkJournal},
	}
}

func checkAnswers(in *Input) []Finding {
	switch {
	case in.Driver != nil:
		return nil
	case in.Ready != "":
		return []Finding{{
			Level: Fail, What: "the driver runs, but does not work yet", Where: in.Settings.PluginDir, Why: in.Ready,
			Do: "put right what it waits for; kubectl -n dra-network logs daemonset/dra-network-driver says more",
		}}
	case in.process("dra-network-driver") != nil:
		return []Finding{{
			Level: Fail, What: "the driver runs, but does not answer", Where: in.Settings.PluginDir, Why: in.Silence,
			Do: "run this as root, with --socket if the driver has another --plugin-dir; look at its log",
		}}
	}
	return []Finding{{
		Level: Fail, What: "the driver does not run on this node", Where: in.Settings.PluginDir, Why: in.Silence,
		Do: "kubectl -n dra-network get pods -o wide: is there one for this node, and what keeps it from running?",
	}}
}

func checkReady(in *Input) []Finding {
	if len(in.Driver.State.NotReady) == 0 {
		return nil
	}
	return []Finding{{
		Level: Fail, What: "the driver is not ready", Where: "/readyz", Why: strings.Join(in.Driver.State.NotReady, "; "),
		Do: "if it has just started, wait some seconds; else see what kubelet and the container runtime say of it in their logs",
	}}
}

func checkNodeName(in *Input) []Finding {
	state := &in.Driver.State
	if !state.NodeFound {
		return []Finding{{
			Level: Fail, What: fmt.Sprintf("the API server knows no node %q", state.Node), Where: "--node-name of the driver",
			Why: "nothing is published for a node that does not exist", Do: "give the driver the name that kubectl get nodes shows for this machine",
		}}
	}
	if in.Kubelet == nil {
		return nil
	}
	wanted := in.Kubelet.NodeName
	if wanted == "" {
		return nil // a cloud provider may have named it
	}
	if strings.EqualFold(wanted, state.Node) {
		return nil
	}
	return []Finding{{
		Level: Fail, What: fmt.Sprintf("the driver works for node %q, and kubelet is %q", state.Node, wanted), Where: "--node-name of the driver",
		Why: "this machine's devices are offered as those of another node", Do: "give the driver the name of kubelet, as the DaemonSet does with spec.nodeName",
	}}
}

func checkJournal(in *Input) []Finding {
	var found []Finding
	for _, path := range in.SetAside {
		found = append(found, Finding{
			Level: Warn, What: "a journal could not be read and was set aside", Where: path,
			Why: "what it knew is lost: devices that were in pods may not be as they were, addresses may stay leased",
			Do:  "look for a failing disk, and at netdra devices; then remove the file",
		})
	}
	return found
}
