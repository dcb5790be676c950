package cnichain

import (
	"encoding/json"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// scope resolves template tokens of a step: its device, pod, claim and node, and the earlier steps of its instance.
func scope(attachment *Attachment, record *StepRecord, node string) lookup {
	return func(t token) (any, error) {
		switch t.root {
		case rootPod:
			return object(t, attachment.Pod.Name, attachment.Pod.Namespace, attachment.Pod.UID)
		case rootClaim:
			return object(t, record.Claim.Name, record.Claim.Namespace, record.Claim.UID)
		case rootNode:
			return node, nil
		case rootDevice:
			return deviceValue(t, record.Step.Device)
		}
		for i := range attachment.Steps {
			other := &attachment.Steps[i]
			if other.Claim == record.Claim && other.Topology == record.Topology && other.Step.Instance == record.Step.Instance && other.Step.Name == t.root {
				return stepValue(t, other)
			}
		}
		return nil, fmt.Errorf("there is no step %q", t.root)
	}
}

func object(t token, name, namespace, uid string) (any, error) {
	switch t.field {
	case "name":
		return name, nil
	case "namespace":
		return namespace, nil
	case "uid":
		return uid, nil
	}
	return nil, fmt.Errorf("%s has no %s", t.root, t.field)
}

// runtimeDeviceID is the key of the CNI runtime configuration for a device (CNI conventions, "deviceID").
const runtimeDeviceID = "deviceID"

// Keys of the CNI runtime configuration (CNI conventions, "Dynamic Plugin specific fields").
const (
	runtimeMAC = "mac"
	runtimeIPs = "ips"
)

// complete adds to a rendered configuration what names the device, and what the claim wants.
func complete(step *PlanStep, config json.RawMessage) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{} // raw, so that numbers stay as they are written
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, fmt.Errorf("cannot read config: %w", err)
	}
	if step.DeviceParameter != "" {
		if err := set(fields, step.DeviceParameter, step.DeviceValue); err != nil {
			return nil, err
		}
	}
	added := map[string]any{}
	if step.RuntimeDeviceID != "" {
		added[runtimeDeviceID] = step.RuntimeDeviceID
	}
	if step.MAC != "" {
		added[runtimeMAC] = step.MAC
	}
	if len(step.IPs) > 0 {
		added[runtimeIPs] = step.IPs
	}
	if len(added) == 0 {
		return fields, nil
	}
	runtimeConfig := map[string]json.RawMessage{}
	if given := fields["runtimeConfig"]; given != nil {
		if err := json.Unmarshal(given, &runtimeConfig); err != nil {
			return nil, fmt.Errorf("cannot read runtimeConfig: %w", err)
		}
	}
	for key, value := range added {
		if err := set(runtimeConfig, key, value); err != nil {
			return nil, err
		}
	}
	return fields, set(fields, "runtimeConfig", runtimeConfig)
}

func set(fields map[string]json.RawMessage, key string, value any) (err error) {
	fields[key], err = json.Marshal(value)
	return err
}

// Preview is the configuration of a step of a plan as far as it is known before there is a pod: what names the device is
// there, tokens of pods and of other steps are still templates.
func Preview(step *PlanStep) (json.RawMessage, error) {
	config, err := newTemplates().renderJSON(step.Config, func(t token) (any, error) {
		if t.root == rootDevice {
			return deviceValue(t, step.Device)
		}
		return "{{ " + t.String() + " }}", nil
	})
	if err != nil {
		return nil, err
	}
	fields, err := complete(step, config)
	if err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// stdin completes a rendered configuration with what the driver sets.
func stdin(attachment *Attachment, record *StepRecord, config json.RawMessage) (json.RawMessage, error) {
	fields, err := complete(&record.Step, config)
	if err != nil {
		return nil, err
	}
	for key, value := range map[string]string{"cniVersion": record.Step.CNIVersion, "name": record.Step.Network, "type": record.Step.Type} {
		if err := set(fields, key, value); err != nil {
			return nil, err
		}
	}
	if record.Step.PrevResult {
		fields["prevResult"], err = resultAs(mergeResults(parentResults(attachment, record)...), record.Step.CNIVersion)
		if err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}

func parentResults(attachment *Attachment, record *StepRecord) []*types100.Result {
	results := make([]*types100.Result, 0, len(record.Step.DependsOn))
	for _, parent := range record.Step.DependsOn {
		results = append(results, attachment.Steps[parent].Merged)
	}
	return results
}
