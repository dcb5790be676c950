package doctor

import (
	"fmt"
	"strings"
)

func driverChecks() []check {
	return []check{
		{group: groupDriver, name: "driver-answers", fine: "the driver runs and answers", inspect: checkAnswers},
		{group: groupDriver, name: "driver-ready", fine: "the driver is ready: pods with claims can start",
			needs: needsDriver, inspect: checkReady},
		{group: groupDriver, name: "node-name", fine: "the driver works for this node", needs: needsCaches,
			inspect: checkNodeName},
		{group: groupDriver, name: "journal", fine: "the journal was never damaged", inspect: checkJournal},
	}
}

// checkAnswers tells apart a driver that waits, one that does not answer, and none. The probe answers before the socket
// does: it is served while the driver still waits for its caches.
func checkAnswers(input *Input) []Finding {
	switch {
	case input.Driver != nil:
		return nil
	case input.Ready != "":
		return []Finding{{
			Level: Fail, What: "the driver runs, but does not work yet", Where: input.Settings.PluginDir,
			Why: input.Ready,
			Do:  "put right what it waits for; kubectl -n dra-network logs daemonset/dra-network-driver says more",
		}}
	case input.process("dra-network-driver") != nil:
		return []Finding{{
			Level: Fail, What: "the driver runs, but does not answer", Where: input.Settings.PluginDir,
			Why: input.Silence,
			Do:  "run this as root, with --socket if the driver has another --plugin-dir; look at its log",
		}}
	}
	return []Finding{{
		Level: Fail, What: "the driver does not run on this node", Where: input.Settings.PluginDir, Why: input.Silence,
		Do: "kubectl -n dra-network get pods -o wide: is there one for this node, and what keeps it from running?",
	}}
}

func checkReady(input *Input) []Finding {
	if len(input.Driver.State.NotReady) == 0 {
		return nil
	}
	return []Finding{{
		Level: Fail, What: "the driver is not ready", Where: "/readyz", Why: strings.Join(input.Driver.State.NotReady,
			"; "),
		Do: "if it has just started, wait some seconds; else see what kubelet and the container runtime say of it in " +
			"their logs",
	}}
}

// checkNodeName compares with --hostname-override, the one name that kubelet's command line has. A cloud provider, or a
// lower-case host name, may give another, so nothing is said without the flag.
func checkNodeName(input *Input) []Finding {
	state := &input.Driver.State
	if !state.NodeFound {
		return []Finding{{
			Level: Fail, What: fmt.Sprintf("the API server knows no node %q",
				state.Node), Where: "--node-name of the driver",
			Why: "nothing is published for a node that does not exist", Do: "give the driver the name that kubectl " +
				"get nodes shows for this machine",
		}}
	}
	if input.Kubelet == nil {
		return nil
	}
	wanted := input.Kubelet.NodeName
	if wanted == "" {
		return nil // a cloud provider may have named it
	}
	if strings.EqualFold(wanted, state.Node) {
		return nil
	}
	return []Finding{{
		Level: Fail, What: fmt.Sprintf("the driver works for node %q, and kubelet is %q", state.Node,
			wanted), Where: "--node-name of the driver",
		Why: "this machine's devices are offered as those of another node", Do: "give the driver the name of " +
			"kubelet, as the DaemonSet does with spec.nodeName",
	}}
}

// checkJournal finds unreadable journals by the names under which the driver sets them aside. The warning stays until
// the file is removed, since the lost data does not return.
func checkJournal(input *Input) []Finding {
	var found []Finding
	for _, path := range input.SetAside {
		found = append(found, Finding{
			Level: Warn, What: "a journal could not be read and was set aside", Where: path,
			Why: "what it knew is lost: devices that were in pods may not be as they were, addresses may stay leased",
			Do:  "look for a failing disk, and at netdra devices; then remove the file",
		})
	}
	return found
}
