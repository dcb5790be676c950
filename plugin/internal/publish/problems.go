package publish

import (
	"context"
	"fmt"
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

type finding struct {
	nodestate.Problem // Policy is empty if the problem concerns the node
	// general is true if the policy itself is at fault, which the controller reports once, rather than every node.
	general bool
}

func findings(facts *discovery.Facts, decision *policy.Decision, result *draslices.Result, server []string) []finding {
	var found []finding
	add := func(source, policy, device, text string, remark bool) {
		found = append(found, finding{general: source == fromPolicies && device == "",
			Problem: nodestate.Problem{Source: source, Policy: policy, Text: text, Remark: remark}})
	}
	for _, text := range server {
		add(fromServer, "", "", text, false)
	}
	for _, problem := range facts.Problems {
		add(fromDiscovery, "", "", problem.String(), false)
	}
	for _, problem := range decision.Problems {
		add(fromPolicies, problem.Policy, problem.Device, problem.String(), problem.Remark)
	}
	for _, problem := range result.Problems {
		add(fromSlices, problem.Policy, problem.Device, problem.String(), problem.Remark)
	}
	return found
}

// maxEvents limits the number of events for one computation, since a single mistake in a policy may affect a thousand
// devices. The log contains all problems.
const maxEvents = 10

// reportProblems logs new problems, creates events for them on the policy or the node, and updates the count of all
// problems.
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
		bySource[problem.Source]++
		if known[problem] {
			continue
		}
		klog.FromContext(ctx).Info("Found a problem with the devices of the node", "source", problem.Source, "problem",
			problem.Text)
		if problem.general || problem.Remark { // no event, because no specific device is withheld
			continue
		}
		if events++; events > maxEvents {
			continue
		}
		p.Recorder.Event(p.subject(problem), corev1.EventTypeWarning, "DevicesNotOffered",
			telemetry.WithHint("node "+p.NodeName+": "+problem.Text,
				fmt.Sprintf(`"kubectl netdra doctor --node %s" checks the node`, p.NodeName)))
	}
	if len(found) == 0 && len(p.problems) > 0 {
		klog.FromContext(ctx).Info("Problems with the devices of the node are resolved")
	}
	p.mu.Lock()
	p.problems = found
	p.mu.Unlock()
	p.Metrics.computed(decision, result, bySource)
}

func (p *Publisher) subject(problem finding) *corev1.ObjectReference {
	for _, policy := range p.Cluster.ExposurePolicies() {
		if policy.Name == problem.Policy {
			return &corev1.ObjectReference{APIVersion: policyapi.GroupVersion().String(), Kind: "DeviceExposurePolicy",
				Name: policy.Name, UID: policy.UID}
		}
	}
	name := p.NodeName // in events for a node, the kubelet and kubectl describe use the node's name as the UID
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}

// logDecision logs why each device is offered or hidden, if the reason has changed.
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
		problems = append(problems, problem.Problem)
	}
	return problems
}
