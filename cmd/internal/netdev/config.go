package netdev

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// config is the plugin's configuration. Unknown keys are ignored, because runtimes and Multus add their own.
type config struct {
	types.NetConf
	// Device is the name of the link on the host.
	Device string `json:"device"`
	// PCIAddress is the address of a PCI function. If Device is also set, that link must belong to this function.
	PCIAddress string `json:"pciBusID"`
	// DeviceID is the device that was allocated for the network: a PCI function, an auxiliary device, or a link. It is
	// set by Multus and overrides Device and PCIAddress. Multus also sets PCIAddress to the same value, regardless of
	// the kind of device.
	DeviceID string `json:"deviceID"`
	// RuntimeConfig contains the device that a device plugin has passed to the runtime.
	RuntimeConfig struct {
		// DeviceID is the address of a PCI function or the name of an auxiliary device. It overrides Device and
		// PCIAddress.
		DeviceID string `json:"deviceID,omitempty"`
	} `json:"runtimeConfig,omitempty"`
}

// readConfig parses the configuration that a runtime passes on standard input. Its errors are of type *types.Error and
// use the codes from the CNI specification, which runtimes evaluate. readConfig translates DeviceID into the other
// fields; no other code reads DeviceID.
func readConfig(data []byte) (*config, error) {
	conf := &config{}
	if err := json.Unmarshal(data, conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "cannot read the configuration", err.Error())
	}
	if err := version.ParsePrevResult(&conf.NetConf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "cannot read prevResult", err.Error())
	}
	if conf.DeviceID != "" && conf.RuntimeConfig.DeviceID == "" {
		conf.Device, conf.PCIAddress = "", ""
		if isOnBus(conf.DeviceID) {
			conf.RuntimeConfig.DeviceID = conf.DeviceID
		} else {
			conf.Device = conf.DeviceID
		}
	}
	return conf, nil
}

// isOnBus reports whether an ID refers to a device on a bus. A PCI address always does, even if the function no longer
// exists, because the kernel does not allow colons in link names.
func isOnBus(id string) bool {
	_, err := deviceFolder("auxiliary", id)
	return err == nil || strings.Contains(id, ":")
}

// previous returns the result of ADD if the runtime has passed it to the plugin, or nil otherwise. For DEL, runtimes
// have passed the result since version 0.4.0 of the specification; for CHECK, they always pass it.
func (c *config) previous() (*types100.Result, error) {
	if c.PrevResult == nil {
		return nil, nil
	}
	result, err := types100.NewResultFromResult(c.PrevResult)
	if err != nil {
		return nil, fmt.Errorf("cannot read prevResult: %w", err)
	}
	return result, nil
}

// interfaceOf returns the pod's interface with the given name from a result, or nil if the result does not contain it.
// An interface without a sandbox, such as one end of a veth pair, is on the host.
func interfaceOf(result *types100.Result, name string) *types100.Interface {
	if result == nil {
		return nil
	}
	for _, candidate := range result.Interfaces {
		if candidate.Name == name && candidate.Sandbox != "" {
			return candidate
		}
	}
	return nil
}
