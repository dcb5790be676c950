package netdev

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// config is what the plugin is given. Keys that are not here are ignored: runtimes and Multus add some of their own.
type config struct {
	types.NetConf
	// Device is the name of the link on the host.
	Device string `json:"device"`
	// PCIAddress is that of a network function. With both, the link must be that function's.
	PCIAddress string `json:"pciBusID"`
	// DeviceID is how Multus names what was allocated for the network: a PCI function, an auxiliary device, or a link.
	// It replaces Device and PCIAddress, of which Multus sets the second to the same, whatever it is.
	DeviceID string `json:"deviceID"`
	// RuntimeConfig has what the runtime was told by a device plugin.
	RuntimeConfig struct {
		// DeviceID is the address of a PCI function or the name of an auxiliary device. It replaces Device and
		// PCIAddress.
		DeviceID string `json:"deviceID,omitempty"`
	} `json:"runtimeConfig,omitempty"`
}

// readConfig reads the configuration that a runtime gives on standard input. Its errors are of type *types.Error with
// the codes of the CNI specification, which runtimes tell apart. After it, DeviceID is resolved: the other fields say
// what is meant, and nothing else in this package reads it.
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

// isOnBus reports whether an ID is that of a device of a bus. A PCI address is one also when its function is gone: no
// link can have such a name, in which the kernel refuses colons.
func isOnBus(id string) bool {
	_, err := deviceFolder("auxiliary", id)
	return err == nil || strings.Contains(id, ":")
}

// previous is the result of ADD, as the runtime has kept it; nil if it gives none. DEL has it since version 0.4.0 of
// the specification, and CHECK always.
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

// interfaceOf is what a result says of an interface in a pod; nil if it says nothing. An interface without a sandbox is
// one of the host, such as the other end of a veth pair.
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
