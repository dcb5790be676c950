package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Parameters are the opaque parameters in a generated DeviceClass. They specify which step in which topology attaches
// the device. They are honored only in DeviceClasses, never in claims.
type Parameters struct {
	// APIVersion is networking.dra.io/v1alpha1 or networking.dra.io/v1beta1, which are equivalent. It may be empty.
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind is StepParameters. It may be empty.
	Kind string `json:"kind,omitempty"`
	// NetworkTopologyRef names the topology.
	NetworkTopologyRef TopologyRef `json:"networkTopologyRef"`
	// Step is the name of a root step in the topology.
	Step string `json:"step"`
}

// TopologyRef names a NetworkTopology.
type TopologyRef struct {
	Name string `json:"name"`
}

// ParametersKind is the kind of Parameters.
const ParametersKind = "StepParameters"

// BandwidthParametersKind is the kind of the opaque parameters in a DeviceClass for link bandwidth. These parameters
// have no fields besides apiVersion and kind. Claims that use such a class consume bandwidth from a device, but the
// driver attaches nothing to the pod.
const BandwidthParametersKind = "BandwidthParameters"

// IsBandwidthParameters reports whether opaque parameters are BandwidthParameters. It returns false for parameters of a
// different kind or with unknown fields, for which DecodeParameters returns an error.
func IsBandwidthParameters(raw []byte) bool {
	var parameters struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind"`
	}
	return decode(raw, &parameters) == nil && parameters.Kind == BandwidthParametersKind &&
		checkKind(parameters.APIVersion, parameters.Kind, BandwidthParametersKind) == nil
}

// DecodeParameters decodes opaque parameters strictly: unknown fields, a different kind and missing names are errors.
func DecodeParameters(raw []byte) (Parameters, error) {
	var parameters Parameters
	if err := decode(raw, &parameters); err != nil {
		return Parameters{}, err
	}
	if err := checkKind(parameters.APIVersion, parameters.Kind, ParametersKind); err != nil {
		return Parameters{}, err
	}
	if parameters.NetworkTopologyRef.Name == "" || parameters.Step == "" {
		return Parameters{}, errors.New("parameters need networkTopologyRef.name and step")
	}
	return parameters, nil
}

// decode decodes opaque parameters. Unknown fields and a second document are errors, since ignoring them would silently
// drop a setting.
func decode(raw []byte, target any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(target); err != nil {
		return fmt.Errorf("cannot read parameters of a %s device: %w", DriverName, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot read parameters of a %s device: more than one document", DriverName)
	}
	return nil
}

// checkKind rejects an unknown version or kind; either may be empty. Every served version is accepted: the API server
// does not convert opaque parameters, so claims keep the version that their author used.
func checkKind(apiVersion, kind, want string) error {
	if apiVersion != "" && !IsServed(apiVersion) {
		return fmt.Errorf("parameters have apiVersion %q, this driver reads %q", apiVersion, servedNames())
	}
	if kind != "" && kind != want {
		return fmt.Errorf("parameters have kind %q, want %q", kind, want)
	}
	return nil
}
