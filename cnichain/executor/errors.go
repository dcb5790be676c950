package executor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// StepError is an error from a step of an attachment.
type StepError struct {
	Claim    cnichain.Claim
	Topology string
	Step     string
	Type     string
	// Command is the CNI command, such as ADD or DEL.
	Command string
	Err     error
}

// Error describes the step, its CNI type and the cause.
func (e *StepError) Error() string {
	return fmt.Sprintf("step %q (%s) of topology %s failed at %s: %v", e.Step, e.Type, e.Topology, e.Command, e.Err)
}

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// KernelHint returns a suggested fix for a failed step if the node's kernel probably lacks a feature that the step's
// plugin needs. It returns "" for other errors. Plugins report errors as text, so the only clue is the kernel's error
// message in that text.
func KernelHint(err error, node string) string {
	var step *StepError
	if !errors.As(err, &step) || !strings.Contains(step.Err.Error(), unix.EOPNOTSUPP.Error()) {
		return ""
	}
	return fmt.Sprintf("the kernel of node %s or the device's driver may lack a feature that %s needs: %s, or remove "+
		"the setting that the device does not support", node, step.Type, kernelRemedy(step.Type))
}

// kernelRemedy explains how to add the kernel feature that a plugin needs, based on the link types that the plugin
// creates. VLAN filtering on bridges is a kernel build option, not a module.
func kernelRemedy(cniType string) string {
	schema, _ := cnichain.DefaultSchemas().Lookup(cniType)
	switch {
	case slices.Contains(schema.LinkTypes, "bridge"):
		return "use a kernel that is built with CONFIG_BRIDGE_VLAN_FILTERING, which VLANs on a bridge need"
	case len(schema.LinkTypes) > 0:
		return cnichain.InstallLinkType(schema.LinkTypes[0])
	}
	return "load the kernel module of the feature, use a kernel that is built with it"
}

// UndoError is returned if ADD failed and has not been fully rolled back yet.
type UndoError struct{ Cause, Undo error }

// Error returns both messages.
func (e *UndoError) Error() string {
	return fmt.Sprintf("%v; and it could not be undone yet: %v", e.Cause, e.Undo)
}

// Unwrap returns both errors.
func (e *UndoError) Unwrap() []error { return []error{e.Cause, e.Undo} }

func stepError(record *StepRecord, command string, err error) error {
	return &StepError{Claim: record.Claim, Topology: record.Topology, Step: record.Step.Name, Type: record.Step.Type,
		Command: command, Err: err}
}
