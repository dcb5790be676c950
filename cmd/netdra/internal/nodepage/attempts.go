package nodepage

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// addLastAttempts adds the most recently logged sandbox for each claim that has no sandbox now. After a failed chain,
// the driver cleans up, and the sandbox disappears until the container runtime creates the next one. Without this, a
// page rendered in between would not show why the pod is pending.
func addLastAttempts(node *Node) []nodestate.Sandbox {
	boxes := slices.Clone(node.Sandboxes)
	for i := range node.Claims {
		claim := &node.Claims[i].Claim
		if slices.ContainsFunc(node.Sandboxes, func(b nodestate.Sandbox) bool {
			return slices.Contains(b.Claims,
				claim.UID)
		}) {
			continue
		}
		box, found := lastAttempt(node.Calls[claim.String()], claim.UID)
		if !found {
			continue
		}
		if same := slices.IndexFunc(boxes,
			func(b nodestate.Sandbox) bool { return b.ID == box.ID }); same >= 0 { // a pod with several claims
			boxes[same].Claims = append(boxes[same].Claims, claim.UID)
			if boxes[same].Failure == "" {
				boxes[same].Failure = box.Failure
			}
			continue
		}
		boxes = append(boxes, box)
	}
	return boxes
}

// lastAttempt returns the sandbox of the last call for the claim with the given UID. Calls for an earlier claim with
// the same name are ignored.
func lastAttempt(calls []calllog.Call, uid string) (nodestate.Sandbox, bool) {
	var box nodestate.Sandbox
	for i := len(calls) - 1; i >= 0; i-- {
		call := &calls[i]
		if call.ClaimUID != uid {
			continue
		}
		if box.ID == "" {
			namespace, name, _ := strings.Cut(call.Pod, "/")
			box = nodestate.Sandbox{ID: call.Sandbox, Pod: executor.Pod{Namespace: namespace, Name: name},
				Claims: []string{uid}, State: nodestate.SandboxEnded}
		}
		if call.Sandbox == box.ID && call.Error != "" && box.Failure == "" {
			box.Failure = call.Command + " of step " + call.Step + " (" + filepath.Base(call.Plugin) + "): " +
				call.Error
		}
	}
	return box, box.ID != ""
}
