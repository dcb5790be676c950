package cnichain

import (
	"encoding/json"
	"fmt"
	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
)

// runtimeDeviceID is the key for the device ID in the CNI runtime configuration (CNI conventions, "deviceID").
const runtimeDeviceID = "deviceID"

// Keys in the CNI runtime configuration (CNI conventions, "Dynamic Plugin specific fields").
const (
	runtimeMAC = "mac"
	runtimeIPs = "ips"
)

// CompleteConfig adds the device and the claim's parameters to a rendered configuration.
func CompleteConfig(step *PlanStep, config json.RawMessage) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{} // raw, to preserve the format of numbers
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

// Preview returns the configuration of a step in a plan, as far as it is known without a pod. It identifies the device,
// but leaves templates that refer to the pod or to other steps unrendered.
func Preview(step *PlanStep) (json.RawMessage, error) {
	config, err := template.New().RenderJSON(step.Config, func(t template.Token) (any, error) {
		if t.Root == template.VarDevice {
			return step.Device.AttributeValue(t.Field)
		}
		return "{{ " + t.String() + " }}", nil
	})
	if err != nil {
		return nil, err
	}
	fields, err := CompleteConfig(step, config)
	if err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
