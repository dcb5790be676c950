package publish

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// finding is a problem and the object that it refers to.
type finding struct {
	source string
	// policy is empty if the problem concerns the node; device is empty if it does not concern a specific device.
	policy, device string
	text           string
	// general is true for a fault in the policy itself, which the controller reports once instead of every node.
	general bool
	// remark is true for a problem that does not prevent a device from being offered as its policy requires.
	remark bool
}

// findings returns the problems found during a computation.
func findings(facts *discovery.Facts, decision *policy.Decision, result *draslices.Result, server []string) []finding {
	var found []finding
	for _, text := range server {
		found = append(found, finding{source: fromServer, text: text})
	}
	for _, problem := range facts.Problems {
		found = append(found, finding{source: fromDiscovery, text: problem.String()})
	}
	for _, problem := range decision.Problems {
		found = append(found, finding{source: fromPolicies, policy: problem.Policy, device: problem.Device,
			text: problem.String(), general: problem.Device == "", remark: problem.Remark})
	}
	for _, problem := range result.Problems {
		found = append(found, finding{source: fromSlices, policy: problem.Policy, device: problem.Device,
			text: problem.String(), remark: problem.Remark})
	}
	return found
}

// maxEvents limits the events for one computation: a policy may be wrong for a thousand devices. The log contains all
// problems.
const maxEvents = 10

// reportProblems logs new problems, sends events about them to the policy or the node, and counts all problems.
func (p *Publisher) reportProblems(
	ctx context.Context, found []finding, decision *policy.Decision, result *draslices.Result,
) {
	known := make(map[finding]bool, len(p.problems))
	for _, problem := range p.problems {
		known[problem] = true
	}
	bySource := map[string]int{}
	events := 0
	for _, problem := range found {
		bySource[problem.source]++
		if known[problem] {
			continue
		}
		klog.FromContext(ctx).Info("Found a problem with the devices of the node", "source", problem.source, "problem",
			problem.text)
		if problem.general || problem.remark { // no event: no specific device is withheld
			continue
		}
		if events++; events > maxEvents {
			continue
		}
		p.Recorder.Event(p.subject(problem), corev1.EventTypeWarning, "DevicesNotOffered",
			telemetry.WithHint("node "+p.NodeName+": "+problem.text, p.hint(problem)))
	}
	if len(found) == 0 && len(p.problems) > 0 {
		klog.FromContext(ctx).Info("Problems with the devices of the node are resolved")
	}
	p.mu.Lock()
	p.problems = found
	p.mu.Unlock()
	p.Metrics.computed(decision, result, bySource)
}

// shellWord matches a word that a shell does not interpret.
var shellWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:@-]*$`)

// hint returns a command that shows details about a problem. The name of a link may contain shell syntax, which must
// not be executed if a user copies the command.
func (p *Publisher) hint(problem finding) string {
	if !shellWord.MatchString(problem.device) {
		return fmt.Sprintf(`"kubectl netdra doctor --node %s" checks the node`, p.NodeName)
	}
	return fmt.Sprintf(`"kubectl netdra explain %s --node %s" shows what policies make of the device`, problem.device,
		p.NodeName)
}

// subject returns the object that an event is about.
func (p *Publisher) subject(problem finding) *corev1.ObjectReference {
	for _, policy := range p.Cluster.ExposurePolicies() {
		if policy.Name == problem.policy {
			return &corev1.ObjectReference{APIVersion: policyapi.GroupVersion().String(), Kind: "DeviceExposurePolicy",
				Name: policy.Name, UID: policy.UID}
		}
	}
	name := p.NodeName // in events about a node, the kubelet and kubectl describe use its name as the UID
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}

// logDecision logs, for each device, why it is offered or hidden, if this has changed.
func (p *Publisher) logDecision(ctx context.Context, decision *policy.Decision) {
	logger := klog.FromContext(ctx).V(telemetry.LevelDecisions)
	if !logger.Enabled() {
		return
	}
	logged := make(map[string]string, len(decision.Devices))
	for i := range decision.Devices {
		device := &decision.Devices[i]
		reasons := make([]string, len(device.Reasons))
		for j, reason := range device.Reasons {
			reasons[j] = reason.String()
		}
		name := claims.Identity(device.Device)
		logged[name] = fmt.Sprintf("%d %s", len(device.Personas), strings.Join(reasons, "; "))
		if p.logged[name] != logged[name] {
			logger.Info("Decided on a device", "device", name, "entries", len(device.Personas), "reasons", reasons)
		}
	}
	p.logged = logged
}

// Problems returns the problems found during the last computation.
func (p *Publisher) Problems() []nodestate.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	problems := make([]nodestate.Problem, 0, len(p.problems))
	for _, problem := range p.problems {
		problems = append(problems, nodestate.Problem{Source: problem.source, Policy: problem.policy,
			Text: problem.text, Remark: problem.remark})
	}
	return problems
}
